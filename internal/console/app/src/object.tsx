// One object: what it is, its YAML, events, relations, history, and what can be done with it.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Actions } from './actions';
import { APIError, isAbort, query, request, sleep, watch, WhileShown, type KubeObject, type Value } from './api';
import { useApp, useLoaded } from './app';
import { apiVersionOf, findByKey, keyOf, listPath, objectPath, type Resource } from './discovery';
import { Edit } from './edit';
import { History } from './history';
import { Logs } from './logs';
import { Related, referencesOf } from './related';
import { link, listLink, objectLink } from './router';
import { hidden, isSecret } from './secrets';
import { Terminal } from './terminal';
import { Why } from './why';
import { Age, Badge, Busy, Chips, Facts, Problem, SimpleTable, Tabs, textOf, toneOf, type TabItem } from './ui';

interface Followed {
  object?: KubeObject;
  gone: boolean;
  error?: unknown;
}

/** useObject reads an object and follows its changes. */
export function useObject(resource: Resource, namespace: string, name: string): Followed & { reload: () => void } {
  const [state, set] = useState<Followed>({ gone: false });
  const [again, setAgain] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    set({ gone: false });
    const path = objectPath(resource, namespace, name);
    const run = async (): Promise<void> => {
      for (let failures = 0; !stop.signal.aborted; failures++) {
        const shown = new WhileShown(stop.signal);
        let read = false;
        try {
          await shown.begin();
          const object = await request<KubeObject>(path, { signal: stop.signal });
          read = true;
          set({ object, gone: false });
          if (!resource.verbs.includes('watch')) return;
          const list = listPath(resource, namespace) + query({
            fieldSelector: `metadata.name=${name}`, watch: 1, resourceVersion: object.metadata.resourceVersion, timeoutSeconds: 1800,
          });
          const began = Date.now();
          for await (const event of watch<KubeObject>(list, shown.signal)) {
            failures = 0;
            if (event.type === 'BOOKMARK') continue;
            set({ object: event.object, gone: event.type === 'DELETED' });
          }
          if (Date.now() - began > 10_000) failures = 0;
        } catch (e) {
          if (stop.signal.aborted) return;
          if (isAbort(e)) continue; // the page was hidden: it reads again when it is shown
          if (read && e instanceof APIError && e.code === 403) return; // it may be read, and not watched
          if (e instanceof APIError && e.code !== 410 && e.code !== 429 && e.code < 500) {
            set((s) => (e.code === 404 && s.object ? { ...s, gone: true } : { ...s, error: e, gone: e.code === 404 }));
            return;
          }
          set((s) => ({ ...s, error: e })); // until the next try
        } finally {
          shown.end();
        }
        await sleep(Math.min(30_000, 1000 * 2 ** failures), stop.signal);
      }
    };
    void run();
    return () => stop.abort();
  }, [resource, namespace, name, again]);
  return { ...state, reload: () => setAgain((n) => n + 1) };
}

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
          <a class="dim" href={listLink(resource)}>
            {resource.kind}
          </a>{' '}
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
        <p>
          <a href={objectLink(resource, namespace, name, 'history')}>Look at its history</a>
        </p>
      ) : null}
      {content}
    </section>
  );
}

/** conditionsOf returns the conditions of an object that has any. */
const conditionsOf = (object: KubeObject): Value[] =>
  Array.isArray(object.status?.conditions) ? object.status.conditions.filter((c: Value) => c && typeof c === 'object') : [];

/** Conditions that tell of a problem when they are True. */
const BAD_WHEN_TRUE = /(Pressure|Failure|Failed|Stalled|Unavailable|Unreachable|Degraded|Remaining|Terminating|NonStructural|Disruption)/;

function conditionTone(c: Value): 'good' | 'bad' | 'warn' {
  if (c.status === 'Unknown') return 'warn';
  const bad = BAD_WHEN_TRUE.test(textOf(c.type));
  return (c.status === 'True') === bad ? 'bad' : 'good';
}

function Overview({ resource, object }: { resource: Resource; object: KubeObject }): JSX.Element {
  const app = useApp();
  const m = object.metadata;
  const conditions = conditionsOf(object);
  const references = useMemo(() => referencesOf(object, app.discovery), [object, app.discovery]);
  const phase = object.status?.phase;
  return (
    <>
      <div class="columns">
        <div>
          <Facts
            items={[
              ['Kind', `${object.kind ?? resource.kind} (${object.apiVersion ?? apiVersionOf(resource)})`],
              ['Namespace', m.namespace ? <a href={objectLink(findByKey(app.discovery, 'namespaces') ?? resource, '', m.namespace)}>{m.namespace}</a> : ''],
              ['Created', m.creationTimestamp ? <><Age time={m.creationTimestamp} /> ago</> : ''],
              ['Phase', typeof phase === 'string' ? <Badge tone={toneOf(phase) ?? 'idle'}>{phase}</Badge> : ''],
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
          {references.length ? (
            <>
              <h2>Refers to</h2>
              <ul class="links">
                {references.map((r) => (
                  <li key={r.href + r.where}>
                    <a href={r.href}>{r.text}</a> <span class="dim">{r.where}</span>
                  </li>
                ))}
              </ul>
            </>
          ) : null}
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
      <div class="columns">
        <Scalars title="Spec" of={object.spec} />
        <Scalars title="Status" of={object.status} />
      </div>
    </>
  );
}

/** Scalars shows the members of a spec or status that are no objects or lists. */
function Scalars({ title, of }: { title: string; of: Value }): JSX.Element | null {
  if (!of || typeof of !== 'object' || Array.isArray(of)) return null;
  const shown = Object.entries(of as Record<string, unknown>).filter(
    ([key, v]) => ['string', 'number', 'boolean'].includes(typeof v) && v !== '' && key !== 'phase',
  );
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
  const containers: Value[] = object.spec?.containers ?? object.spec?.template?.spec?.containers ?? object.spec?.jobTemplate?.spec?.template?.spec?.containers ?? [];
  const statuses: Value[] = object.status?.containerStatuses ?? [];
  if (Array.isArray(containers) && containers.length) {
    return (
      <>
        <h2>Containers</h2>
        <SimpleTable
          label="Containers"
          empty=""
          head={object.kind === 'Pod' ? ['Name', 'Image', 'State', 'Restarts'] : ['Name', 'Image']}
          rows={containers.map((c) => {
            const about = [textOf(c?.name), <code>{textOf(c?.image)}</code>];
            if (object.kind !== 'Pod') return about;
            const s = Array.isArray(statuses) ? statuses.find((one) => one?.name === c?.name) : undefined;
            const state = Object.keys(s?.state ?? {})[0] ?? '';
            const reason = s?.state?.[state]?.reason ?? state;
            return [...about, reason ? <Badge tone={state === 'running' ? 'good' : toneOf(textOf(reason)) ?? 'idle'}>{textOf(reason)}</Badge> : '', s ? String(s.restartCount ?? 0) : ''];
          })}
        />
      </>
    );
  }
  if (object.kind === 'ConfigMap' && object.data) {
    return (
      <>
        <h2>Data</h2>
        <Facts items={Object.entries(object.data as Record<string, string>).map(([k, v]) => [k, <pre class="value">{textOf(v)}</pre>])} />
      </>
    );
  }
  if (isSecret(object) && object.data) {
    return (
      <>
        <h2>Data</h2>
        <Facts items={Object.entries(object.data as Record<string, string>).map(([k, v]) => [k, <Hidden value={textOf(v)} />])} />
      </>
    );
  }
  return null;
}

/** Hidden shows a value of a Secret when it is asked for. */
function Hidden({ value }: { value: string }): JSX.Element {
  const [shown, show] = useState(false);
  let bytes = new Uint8Array();
  let text = value;
  try {
    bytes = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    text = `${value} (base64)`;
  }
  return shown ? (
    <pre class="value">{text}</pre>
  ) : (
    <button class="quiet" onClick={() => show(true)}>
      show ({bytes.length} bytes)
    </button>
  );
}

function Events({ object }: { object: KubeObject }): JSX.Element {
  const m = object.metadata;
  const loaded = useLoaded(
    (signal) =>
      request(
        `/api/v1/${m.namespace ? `namespaces/${encodeURIComponent(m.namespace)}/` : ''}events${query({ fieldSelector: `involvedObject.uid=${m.uid ?? ''}`, limit: 500 })}`,
        { signal },
      ),
    [m.uid],
  );
  const timer = useRef(0);
  useEffect(() => {
    timer.current = window.setInterval(() => document.hidden || loaded.reload(), 5000);
    return () => clearInterval(timer.current);
  }, []);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading" />;
  const time = (e: Value): string => e.series?.lastObservedTime ?? e.lastTimestamp ?? e.eventTime ?? e.metadata?.creationTimestamp ?? '';
  const items: Value[] = [...(loaded.value.items ?? [])].sort((a, b) => time(b).localeCompare(time(a)));
  return (
    <SimpleTable
      label="Events"
      empty="No Events."
      head={['Last seen', 'Type', 'Reason', 'Count', 'From', 'Message']}
      rows={items.map((e) => [
        <Age time={time(e)} />,
        <Badge tone={e.type === 'Warning' ? 'bad' : 'idle'}>{textOf(e.type)}</Badge>,
        textOf(e.reason),
        String(e.series?.count ?? e.count ?? 1),
        textOf(e.reportingComponent || e.source?.component),
        textOf(e.message),
      ])}
    />
  );
}
