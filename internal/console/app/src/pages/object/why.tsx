// Why is it stuck: what the deletion of an object waits for, and which conditions do not hold, as the server answers it.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { request } from '../../client/request';
import { how, who } from '../../logic/changes';
import type { Value } from '../../logic/kubernetes';
import { objectLink } from '../../logic/links';
import { findByKey, objectPath, type Resource } from '../../logic/resources';
import { useApp, useLoaded } from '../../parts/app';
import { Age, Badge, Busy, Problem } from '../../parts/ui';

export function Why(props: { resource: Resource; namespace: string; name: string; version?: string }): JSX.Element {
  const { resource, namespace, name, version } = props;
  const loaded = useLoaded((signal) => request(objectPath(resource, namespace, name, 'blockers'), { signal }), [resource, namespace, name]);
  const asked = useRef(version);
  useEffect(() => {
    if (asked.current !== version) loaded.reload();
    asked.current = version;
  }, [version]);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Asking the server" />;
  const found = loaded.value;
  const items: Value[] = found.items ?? [];
  return (
    <div class="why">
      <div class="bar">
        <button onClick={loaded.reload}>Ask again</button>
      </div>
      {found.deletionTimestamp ? (
        <p>
          Its deletion was asked for <Age time={found.deletionTimestamp} /> ago{found.deletion ? ` by ${who(found.deletion)}` : ''}.
        </p>
      ) : null}
      {found.lastChange ? (
        <p class="dim">
          Last change <Age time={found.lastChange.time} /> ago by {who(found.lastChange)} ({how(found.lastChange)}).
        </p>
      ) : null}
      {items.length ? null : <p class="empty">It waits for nothing that the server knows of.</p>}
      <ul class="cards">
        {items.map((b, i) => (
          <li key={i}>
            <Badge tone={b.type === 'Condition' ? 'warn' : 'bad'}>{String(b.type ?? '')}</Badge> <strong>{String(b.name ?? '')}</strong>{' '}
            {b.since ? (
              <span class="dim">
                since <Age time={b.since} />
              </span>
            ) : null}
            <p>{String(b.message ?? '')}</p>
            {b.owner && !String(b.message).includes(b.owner) ? <p class="dim">{`set by ${b.owner}`}</p> : null}
            {b.objects?.length ? (
              <ul>
                {b.objects.map((o: Value, j: number) => (
                  <li key={j}>
                    <ObjectName object={o} />
                    {o.deleting ? <span class="dim">, being deleted</span> : null}
                    {o.finalizers?.length ? (
                      <span class="dim">, waits for {o.finalizers.map((f: Value) => (f.owner ? `${f.name} (${f.owner})` : f.name)).join(', ')}</span>
                    ) : null}
                  </li>
                ))}
                {b.count > b.objects.length ? <li class="dim">and {b.count - b.objects.length} others</li> : null}
              </ul>
            ) : null}
          </li>
        ))}
      </ul>
      {found.notExamined?.length ? <p class="dim">Not examined: {found.notExamined.join(', ')}</p> : null}
    </div>
  );
}

function ObjectName({ object }: { object: Value }): JSX.Element {
  const app = useApp();
  const key = object.group ? `${object.resource}.${object.group}` : String(object.resource);
  const resource = findByKey(app.discovery, key);
  const text = `${key} ${[object.namespace, object.name].filter(Boolean).join('/')}`;
  return resource ? <a href={objectLink(resource, object.namespace, object.name)}>{text}</a> : <span>{text}</span>;
}
