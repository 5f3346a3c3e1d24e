// Why is it stuck: what the deletion of an object waits for, and which conditions do not hold, as the server answers it.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { request } from '../../client/request';
import { how, who, type Change } from '../../logic/changes';
import { objectLink } from '../../logic/links';
import { findByKey, keyOf, objectPath, type Resource } from '../../logic/resources';
import { useApp, useLoaded } from '../../parts/app';
import { Age, Badge, Busy, Problem } from '../../parts/ui';

interface Blocked {
  group?: string;
  resource?: string;
  namespace?: string;
  name?: string;
  deleting?: boolean;
  finalizers?: { name: string; owner?: string }[];
}

/** Blockers is what the server answers for the subresource blockers (docs/history.md). */
interface Blockers {
  deletionTimestamp?: string;
  deletion?: Change;
  lastChange?: Change;
  notExamined?: string[];
  items?: { type?: string; name?: string; since?: string; message?: string; owner?: string; objects?: Blocked[]; count?: number }[];
}

export function Why(props: { resource: Resource; namespace: string; name: string; version: string | undefined }): JSX.Element {
  const { resource, namespace, name, version } = props;
  const loaded = useLoaded((signal) => request<Blockers>(objectPath(resource, namespace, name, 'blockers'), { signal }), [resource, namespace, name]);
  const asked = useRef(version);
  useEffect(() => {
    if (asked.current !== version) loaded.reload();
    asked.current = version;
  }, [version]);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Asking the server" />;
  const found = loaded.value;
  const items = found.items ?? [];
  return (
    <div class="why">
      <div class="bar"><button onClick={loaded.reload}>Ask again</button></div>
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
            <Badge tone={b.type === 'Condition' ? 'warn' : 'bad'}>{b.type}</Badge> <strong>{b.name}</strong>{' '}
            {b.since ? (
              <span class="dim">
                since <Age time={b.since} />
              </span>
            ) : null}
            <p>{b.message}</p>
            {b.owner && !b.message?.includes(b.owner) ? <p class="dim">{`set by ${b.owner}`}</p> : null}
            {b.objects?.length ? (
              <ul>
                {b.objects.map((o, j) => (
                  <li key={j}>
                    <ObjectName object={o} />
                    {o.deleting ? <span class="dim">, being deleted</span> : null}
                    {o.finalizers?.length ? (
                      <span class="dim">, waits for {o.finalizers.map((f) => (f.owner ? `${f.name} (${f.owner})` : f.name)).join(', ')}</span>
                    ) : null}
                  </li>
                ))}
                {(b.count ?? 0) > b.objects.length ? <li class="dim">and {(b.count ?? 0) - b.objects.length} others</li> : null}
              </ul>
            ) : null}
          </li>
        ))}
      </ul>
      {found.notExamined?.length ? <p class="dim">Not examined: {found.notExamined.join(', ')}</p> : null}
    </div>
  );
}

function ObjectName({ object }: { object: Blocked }): JSX.Element {
  const app = useApp();
  const key = keyOf({ plural: object.resource ?? '', group: object.group ?? '' });
  const resource = findByKey(app.discovery, key);
  const text = `${key} ${[object.namespace, object.name].filter(Boolean).join('/')}`;
  return resource ? <a href={objectLink(resource, object.namespace, object.name ?? '')}>{text}</a> : <span>{text}</span>;
}
