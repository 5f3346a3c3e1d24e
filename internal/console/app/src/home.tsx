// The first page: what is here, and what is not well.

import type { JSX } from 'preact';
import { request, type KubeObject, type ListOf, type Value } from './api';
import { useApp, useLoaded } from './app';
import { findByKey, findByKind, hasVerb, listPath } from './discovery';
import { link, listLink, objectLink } from './router';
import { Age, Badge, Busy, Facts, SimpleTable } from './ui';

const FIRST = [
  'pods', 'deployments.apps', 'statefulsets.apps', 'jobs.batch', 'services', 'configmaps', 'namespaces', 'nodes',
  'persistentvolumeclaims', 'customresourcedefinitions.apiextensions.k8s.io',
];

export function Home(): JSX.Element {
  const app = useApp();
  const loaded = useLoaded(async (signal) => {
    const counts = await Promise.all(
      FIRST.map((key) => findByKey(app.discovery, key)).map(async (r) => {
        if (!r || !hasVerb(r, 'list')) return null;
        try {
          const list = await request<ListOf<KubeObject>>(`${listPath(r)}?limit=1`, {
            signal, accept: 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json',
          });
          return { r, n: list.items.length + (list.metadata.remainingItemCount ?? 0), more: !list.metadata.remainingItemCount && !!list.metadata.continue };
        } catch {
          return null;
        }
      }),
    );
    const events = await request<ListOf<Value>>('/api/v1/events?fieldSelector=type%3DWarning&limit=500', { signal }).catch(() => null);
    return { counts, events: events?.items };
  }, []);
  const time = (e: Value): string => e.series?.lastObservedTime ?? e.lastTimestamp ?? e.eventTime ?? e.metadata?.creationTimestamp ?? '';
  const warnings = (loaded.value?.events ?? []).sort((a, b) => time(b).localeCompare(time(a))).slice(0, 25);
  return (
    <section>
      <header class="bar">
        <h1>Overview</h1>
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
        {(loaded.value?.counts ?? []).map((c) =>
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
      {loaded.value?.counts.every((c) => !c) ? (
        <p class="empty">
          You may not list objects in all namespaces. Choose a resource at the left and a namespace, or see under{' '}
          <a href={link(['access'])}>Access</a> what you may do.
        </p>
      ) : null}
      <h2>Warnings</h2>
      {loaded.value ? (
        <SimpleTable
          label="Warnings"
          empty={loaded.value.events ? 'No Event tells of a problem.' : 'You may not list the Events of all namespaces.'}
          head={['Last seen', 'Object', 'Reason', 'Message']}
          rows={warnings.map((e) => {
            const o = e.involvedObject ?? e.regarding ?? {};
            const r = findByKind(app.discovery, o.apiVersion ?? '', o.kind ?? '');
            const text = `${o.kind ?? ''} ${[o.namespace, o.name].filter(Boolean).join('/')}`;
            return [
              <Age time={time(e)} />,
              r ? <a href={objectLink(r, o.namespace, o.name ?? '')}>{text}</a> : text,
              <Badge tone="bad">{String(e.reason ?? '')}</Badge>,
              String(e.message ?? e.note ?? ''),
            ];
          })}
        />
      ) : null}
    </section>
  );
}
