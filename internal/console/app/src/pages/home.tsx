// The first page: what is here, and what is not well.

import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { METADATA_TYPE, requestList } from '../client/request';
import { follow } from '../client/watch';
import { aboutOf, grouped, timeOf, type KubeEvent } from '../logic/events';
import { textOf } from '../logic/format';
import type { KubeObject } from '../logic/kubernetes';
import { link, objectLink, query } from '../logic/links';
import { findByKey, findByKind, hasVerb, listPath } from '../logic/resources';
import { useApp, useEvery, useLoaded } from '../parts/app';
import { listLink } from '../parts/router';
import { Age, Badge, Busy, Facts, SimpleTable } from '../parts/ui';

const FIRST = [
  'pods', 'deployments.apps', 'statefulsets.apps', 'jobs.batch', 'services', 'configmaps', 'namespaces', 'nodes',
  'persistentvolumeclaims', 'customresourcedefinitions.apiextensions.k8s.io',
];

/** The time in milliseconds between two counts. */
const COUNT_AGAIN = 10_000;

/** MOST_WARNINGS is how many Events are read. API servers list them by namespace and name, so the newest are known when all are read. */
const MOST_WARNINGS = 10_000;
const SHOWN = 25;

interface Warnings {
  events: Map<string | undefined, KubeEvent>;
  state: 'loading' | 'live' | 'no connection' | 'forbidden';
  /** There are more than were read. */
  more: boolean;
}

/** useWarnings reads the Events that warn, and follows them. */
function useWarnings(): Warnings {
  const [state, set] = useState<Warnings>({ events: new Map(), state: 'loading', more: false });
  useEffect(() => {
    const stop = new AbortController();
    const path = '/api/v1/events';
    const parameters = { fieldSelector: 'type=Warning' };
    let events: Warnings['events'] = new Map();
    void follow<KubeEvent>(
      {
        path, parameters, revisionOf: (e) => e.metadata.resourceVersion ?? '',
        read: async () => {
          events = new Map();
          let [next, revision] = ['', ''];
          do {
            const page = await requestList<KubeEvent>(path + query({ ...parameters, limit: 500, continue: next }), { signal: stop.signal });
            for (const e of page.items) events.set(e.metadata.uid, e);
            [next, revision] = [page.metadata.continue ?? '', page.metadata.resourceVersion ?? ''];
            set((old) => (old.state === 'loading' || !next ? { events, state: next ? 'loading' : 'live', more: !!next } : old));
          } while (next && events.size < MOST_WARNINGS);
          set({ events, state: 'live', more: !!next });
          return revision;
        },
        event: (type, e) => {
          if (type === 'DELETED') events.delete(e.metadata.uid);
          else events.set(e.metadata.uid, e);
          requestAnimationFrame(() => set((old) => ({ ...old, events, state: 'live' })));
          return events.size <= 2 * MOST_WARNINGS;
        },
        failed: (_, final) => set((old) => ({ ...old, state: final ? 'forbidden' : 'no connection' })),
      },
      stop.signal,
    );
    return () => stop.abort();
  }, []);
  return state;
}

export function Home(): JSX.Element {
  const app = useApp();
  const warnings = useWarnings();
  const loaded = useLoaded(
    (signal) =>
      Promise.all(
        FIRST.map((key) => findByKey(app.discovery, key)).map(async (r) => {
          if (!r || !hasVerb(r, 'list')) return null;
          try {
            const list = await requestList<KubeObject>(`${listPath(r)}?limit=1`, { signal, quiet: true, accept: METADATA_TYPE });
            return { r, n: list.items.length + (list.metadata.remainingItemCount ?? 0), more: !list.metadata.remainingItemCount && !!list.metadata.continue };
          } catch {
            return null;
          }
        }),
      ),
    [],
  );
  useEvery(COUNT_AGAIN, loaded.reload);
  const groups = useMemo(() => grouped(warnings.events.values()), [warnings]);
  return (
    <section>
      <header class="bar">
        <h1>Overview</h1>
        <span class={`live ${warnings.state}`}>{warnings.state === 'forbidden' ? '' : warnings.state}</span>
      </header>
      <Facts
        items={[
          ['Server', app.server.gitVersion],
          ['Address', app.config.server ?? location.origin],
          ['You', app.user.username],
          ['Groups', app.user.groups.join(', ')],
        ]}
      />
      {loaded.loading && !loaded.value ? <Busy what="Counting" /> : null}
      <ul class="tiles">
        {(loaded.value ?? []).map((c) =>
          c ? (
            <li key={c.r.plural}>
              <a href={listLink(c.r, { ns: undefined })}>
                <strong>{c.more ? 'many' : c.n}</strong> <span>{c.r.plural}</span>
              </a>
            </li>
          ) : null,
        )}
        {app.server.history ? (
          <li>
            <a href={link(['timeline'])}>
              <strong>↶</strong> <span>what changed in the last hour</span>
            </a>
          </li>
        ) : null}
      </ul>
      {loaded.value?.every((c) => !c) ? (
        <p class="empty">
          You may not list objects in all namespaces. Choose a resource at the left and a namespace, or see under{' '}
          <a href={link(['access'])}>Access</a> what you may do.
        </p>
      ) : null}
      <h2>Warnings</h2>
      {groups.length || warnings.state !== 'loading' ? (
        <SimpleTable
          label="Warnings"
          empty={warnings.state === 'forbidden' ? 'You may not list the Events of all namespaces.' : 'No Event tells of a problem.'}
          head={['Last seen', 'Object', 'Reason', 'Count', 'Message']}
          rows={groups.slice(0, SHOWN).map(({ newest: e, objects, count }) => {
            const o = aboutOf(e);
            const r = findByKind(app.discovery, o.apiVersion ?? '', o.kind ?? '');
            const text = `${o.kind ?? ''} ${[o.namespace, o.name].filter(Boolean).join('/')}`;
            return [
              <Age time={timeOf(e)} />,
              <>
                {r ? <a href={objectLink(r, o.namespace, o.name ?? '')}>{text}</a> : text}
                {objects.size > 1 ? <span class="dim"> and {objects.size - 1} more</span> : null}
              </>,
              <Badge tone="bad">{textOf(e.reason)}</Badge>,
              String(count),
              textOf(e.message ?? e.note),
            ];
          })}
        />
      ) : <Busy what="Reading the Events" />}
      {groups.length > SHOWN ? <p class="dim">{groups.length - SHOWN} other kinds of warnings are older.</p> : null}
      {warnings.more && warnings.state !== 'loading' ? (
        <p class="dim">There are more than {MOST_WARNINGS} warnings: not all were read, so newer ones may be missing.</p>
      ) : null}
    </section>
  );
}
