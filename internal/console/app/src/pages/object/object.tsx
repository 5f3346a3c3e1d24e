// One object: what it is, its YAML, events, relations, history, and what can be done with it.

import type { ComponentChildren, JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { requestList } from '../../client/request';
import { countOf, newestFirst, timeOf, type KubeEvent } from '../../logic/events';
import { textOf } from '../../logic/format';
import { APIError, type KubeObject } from '../../logic/kubernetes';
import { link, objectLink, query } from '../../logic/links';
import { referencesOf } from '../../logic/references';
import { apiVersionOf, findByKey, keyOf, type Resource } from '../../logic/resources';
import { decoded, hidden, isSecret } from '../../logic/secrets';
import { conditionsOf, conditionTone, toneOf } from '../../logic/status';
import { at, isMembers, listAt, textAt } from '../../logic/values';
import { useApp, useEvery, useLoaded } from '../../parts/app';
import { listLink } from '../../parts/router';
import { Age, Badge, Busy, Chips, Facts, Problem, References, SimpleTable, Tabs, type TabItem } from '../../parts/ui';
import { Actions } from './actions';
import { Edit } from './edit';
import { useObject } from './follow';
import { History } from './history';
import { Logs } from './logs';
import { Related } from './related';
import { Terminal } from './terminal';
import { Why } from './why';

export function ObjectView(props: { resource: Resource; namespace: string; name: string; tab: string }): JSX.Element {
  const { resource, namespace, name, tab } = props;
  const app = useApp();
  const followed = useObject(resource, namespace, name);
  const { object, gone, error } = followed;
  const isPod = resource.plural === 'pods' && resource.group === '';
  const hasHistory = app.server.history;
  const tabs: TabItem[] = (
    [
      ['', 'Overview', true],
      ['yaml', 'YAML', true],
      ['events', 'Events', true],
      ['related', 'Related', true],
      ['logs', 'Logs', isPod],
      ['terminal', 'Terminal', isPod],
      ['history', 'History', hasHistory],
      ['why', 'Why is it stuck', hasHistory],
    ] as [string, string, boolean][]
  )
    .filter(([, , shown]) => shown)
    .map(([id, title]) => ({ id, title, href: objectLink(resource, namespace, name, id) }));
  let content: ComponentChildren = null;
  if (tab === 'history' && hasHistory) content = <History resource={resource} namespace={namespace} name={name} current={gone ? undefined : object} />;
  else if (!object) content = error ? null : <Busy what="Loading" />;
  else if (tab === 'yaml') content = <Edit resource={resource} object={object} gone={gone} />;
  else if (tab === 'events') content = <Events object={object} />;
  else if (tab === 'related') content = <Related resource={resource} object={object} />;
  else if (tab === 'logs' && isPod) content = <Logs pod={object} />;
  else if (tab === 'terminal' && isPod) content = <Terminal pod={object} />;
  else if (tab === 'why' && hasHistory) content = <Why resource={resource} namespace={namespace} name={name} version={object.metadata.resourceVersion} />;
  else content = <Overview resource={resource} object={object} />;
  return (
    <section class="object">
      <header class="bar">
        <h1>
          <a class="dim" href={listLink(resource)}>{resource.kind}</a>{' '}
          {namespace ? <span class="dim">{namespace} / </span> : null}
          {name}
        </h1>
        {object?.metadata.deletionTimestamp && !gone ? <Badge tone="warn">being deleted</Badge> : null}
        {gone ? <Badge tone="bad">gone</Badge> : null}
        <span class="space" />
        {object && !gone ? <Actions resource={resource} object={object} /> : null}
      </header>
      <Tabs items={tabs} selected={tab} label="Parts of the object" />
      {error ? <Problem error={error} retry={followed.reload} /> : null}
      {error instanceof APIError && error.code === 404 && hasHistory && tab !== 'history' ? (
        <p><a href={objectLink(resource, namespace, name, 'history')}>Look at its history</a></p>
      ) : null}
      {content}
    </section>
  );
}

function Overview({ resource, object }: { resource: Resource; object: KubeObject }): JSX.Element {
  const app = useApp();
  const m = object.metadata;
  const conditions = conditionsOf(object);
  const references = useMemo(() => referencesOf(object, app.discovery), [object, app.discovery]);
  const phase = textAt(object, 'status', 'phase');
  return (
    <>
      <div class="columns">
        <div>
          <Facts
            items={[
              ['Kind', `${object.kind ?? resource.kind} (${object.apiVersion ?? apiVersionOf(resource)})`],
              ['Namespace', m.namespace ? <a href={objectLink(findByKey(app.discovery, 'namespaces') ?? resource, '', m.namespace)}>{m.namespace}</a> : ''],
              ['Created', m.creationTimestamp ? <><Age time={m.creationTimestamp} /> ago</> : ''],
              ['Phase', phase ? <Badge tone={toneOf(phase) ?? 'idle'}>{phase}</Badge> : ''],
              ['Deletion asked for', m.deletionTimestamp ? <Age time={m.deletionTimestamp} /> : ''],
              ['Finalizers', m.finalizers?.join(', ') ?? ''],
              ['UID', <code>{m.uid}</code>],
              ['Resource version', <code>{m.resourceVersion}</code>],
            ]}
          />
          <Summary object={object} />
        </div>
        <div>
          {Object.keys(m.labels ?? {}).length ? <h2>Labels</h2> : null}
          <Chips values={m.labels} href={(k, v) => link(['r', keyOf(resource)], { ns: m.namespace, labels: `${k}=${v}` })} />
          {Object.keys(m.annotations ?? {}).length ? <h2>Annotations</h2> : null}
          <Chips values={hidden(object).metadata.annotations} />
          <References references={references} />
        </div>
      </div>
      {conditions.length ? (
        <>
          <h2>Conditions</h2>
          <SimpleTable
            label="Conditions"
            empty=""
            head={['Type', 'Status', 'Since', 'Reason', 'Message']}
            rows={conditions.map((c) => [
              textOf(c.type),
              <Badge tone={conditionTone(c)}>{textOf(c.status)}</Badge>,
              <Age time={c.lastTransitionTime ?? c.lastUpdateTime} />,
              textOf(c.reason),
              textOf(c.message),
            ])}
          />
        </>
      ) : null}
      <div class="columns"><Scalars title="Spec" of={object.spec} /><Scalars title="Status" of={object.status} /></div>
    </>
  );
}

/** Scalars shows the members of a spec or status that are no objects or lists. */
function Scalars({ title, of }: { title: string; of: unknown }): JSX.Element | null {
  if (!isMembers(of)) return null;
  const shown = Object.entries(of).filter(([key, v]) => ['string', 'number', 'boolean'].includes(typeof v) && v !== '' && key !== 'phase');
  if (!shown.length) return null;
  return (
    <div class="scalars">
      <h2>{title}</h2>
      <Facts items={shown.map(([key, v]) => [key, /(Time|Timestamp)$/.test(key) ? <><Age time={String(v)} /> ago</> : String(v)])} />
    </div>
  );
}

/** Summary shows what most people look for first in the kinds that most people have. */
function Summary({ object }: { object: KubeObject }): JSX.Element | null {
  const containers = [[], ['template', 'spec'], ['jobTemplate', 'spec', 'template', 'spec']]
    .map((path) => listAt(object, 'spec', ...path, 'containers'))
    .find((list) => list.length);
  if (containers) {
    return (
      <>
        <h2>Containers</h2>
        <SimpleTable
          label="Containers"
          empty=""
          head={object.kind === 'Pod' ? ['Name', 'Image', 'State', 'Restarts'] : ['Name', 'Image']}
          rows={containers.map((c) => {
            const about = [textOf(at(c, 'name')), <code>{textOf(at(c, 'image'))}</code>];
            if (object.kind !== 'Pod') return about;
            const s = listAt(object, 'status', 'containerStatuses').find((one) => at(one, 'name') === at(c, 'name'));
            const state = Object.keys(at(s, 'state') ?? {})[0] ?? '';
            const reason = textOf(at(s, 'state', state, 'reason') ?? state);
            return [...about, reason ? <Badge tone={state === 'running' ? 'good' : toneOf(reason) ?? 'idle'}>{reason}</Badge> : '', s ? textOf(at(s, 'restartCount') ?? 0) : ''];
          })}
        />
      </>
    );
  }
  const secret = isSecret(object);
  if (!isMembers(object.data) || !(secret || object.kind === 'ConfigMap')) return null;
  return (
    <>
      <h2>Data</h2>
      <Facts items={Object.entries(object.data).map(([k, v]) => [k, secret ? <Hidden value={textOf(v)} /> : <pre class="value">{textOf(v)}</pre>])} />
    </>
  );
}

/** Hidden shows a value of a Secret when it is asked for. */
function Hidden({ value }: { value: string }): JSX.Element {
  const [shown, show] = useState(false);
  const { text, bytes } = decoded(value);
  return shown ? <pre class="value">{text}</pre> : (
    <button class="quiet" onClick={() => show(true)}>
      show ({bytes} bytes)
    </button>
  );
}

function Events({ object }: { object: KubeObject }): JSX.Element {
  const m = object.metadata;
  const loaded = useLoaded(
    (signal) =>
      requestList<KubeEvent>(
        `/api/v1/${m.namespace ? `namespaces/${encodeURIComponent(m.namespace)}/` : ''}events${query({ fieldSelector: `involvedObject.uid=${m.uid ?? ''}`, limit: 500 })}`,
        { signal },
      ),
    [m.uid],
  );
  useEvery(5000, loaded.reload);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading" />;
  return (
    <SimpleTable
      label="Events"
      empty="No Events."
      head={['Last seen', 'Type', 'Reason', 'Count', 'From', 'Message']}
      rows={[...loaded.value.items].sort(newestFirst).map((e) => [
        <Age time={timeOf(e)} />,
        <Badge tone={e.type === 'Warning' ? 'bad' : 'idle'}>{textOf(e.type)}</Badge>,
        textOf(e.reason),
        String(countOf(e)),
        textOf(e.reportingComponent || e.source?.component),
        textOf(e.message),
      ])}
    />
  );
}
