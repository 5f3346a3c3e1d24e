// What changed in a namespace, or in all, and by whom; and what was deleted there, to bring it back.

import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { APIError, isAbort, query, request, sleep, watch, WhileShown } from './api';
import { useApp } from './app';
import { findByKey, type Resource } from './discovery';
import { changeBadge, changedText } from './history';
import { NamespacePicker } from './namespaces';
import { how, who, type Change, type ChangePage } from './past';
import { objectLink, rememberNamespace, setParams, useLocation } from './router';
import { local } from './time';
import { Age, Problem, TextField } from './ui';
import { deletedObjects, UndeleteAll } from './undeleteall';

const KEPT = 2000;

function path(namespace: string): string {
  const base = '/apis/history.keelson.dev/v1alpha1';
  return namespace ? `${base}/namespaces/${encodeURIComponent(namespace)}/changes` : `${base}/changes`;
}

export function Timeline(): JSX.Element {
  const { params } = useLocation();
  const app = useApp();
  const namespace = params.get('ns') ?? '';
  const since = params.get('since') ?? '1h';
  const fields = [
    ['resource', params.get('resource')], ['user', params.get('user')], ['type', params.get('type')], ['name', params.get('name')],
  ].filter((f): f is [string, string] => !!f[1]);
  const selector = fields.map(([k, v]) => `${k}=${v}`).join(',');
  const [changes, setChanges] = useState<Change[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [state, setState] = useState('loading');
  const [back, setBack] = useState<Change[] | null>(null);
  useEffect(() => {
    rememberNamespace(namespace);
    const stop = new AbortController();
    setChanges([]);
    setError(null);
    setState('loading');
    const load = async (): Promise<string> => {
      let revision = '';
      for (let next = ''; ; ) {
        const page = await request<ChangePage>(path(namespace) + query({ since: next ? '' : since, fieldSelector: selector, limit: 500, continue: next }), {
          signal: stop.signal,
        });
        setChanges((old) => [...(page.items ?? []).reverse(), ...old].slice(0, KEPT));
        next = page.metadata?.continue ?? '';
        revision = page.metadata?.resourceVersion ?? revision;
        if (!next) return revision;
      }
    };
    const run = async (): Promise<void> => {
      let revision = '';
      let waiting: Change[] = [];
      const show = (): void => {
        const all = waiting.reverse();
        waiting = [];
        setChanges((old) => [...all, ...old].slice(0, KEPT));
      };
      for (let failures = 0; !stop.signal.aborted; ) {
        const shown = new WhileShown(stop.signal);
        try {
          await shown.begin();
          revision ||= await load();
          setError(null);
          setState('live');
          const to = path(namespace) + query({ watch: true, resourceVersion: revision, fieldSelector: selector });
          for await (const event of watch<Change>(to, shown.signal)) {
            failures = 0;
            if (event.type !== 'ADDED') continue;
            revision = event.object.resourceVersion;
            if (!waiting.length) requestAnimationFrame(show);
            waiting.push(event.object);
            if (waiting.length > 2 * KEPT) waiting = waiting.slice(-KEPT); // nothing is drawn while the page is hidden
          }
        } catch (e) {
          if (stop.signal.aborted) return;
          if (isAbort(e)) continue; // the page was hidden: it goes on when it is shown
          failures++;
          if (e instanceof APIError && e.code === 410) {
            revision = '';
            setChanges([]);
          } else {
            setError(e);
            setState('no connection');
            if (e instanceof APIError && [400, 401, 403, 404].includes(e.code)) return;
          }
        } finally {
          shown.end();
        }
        await sleep(Math.min(30_000, 1000 * 2 ** failures), stop.signal);
      }
    };
    void run();
    return () => stop.abort();
  }, [namespace, since, selector]);
  const deleted = deletedObjects(changes);
  return (
    <section class="timeline-view">
      <header class="bar">
        <h1>What changed</h1>
        <span class="count" role="status">{changes.length}</span>
        <span class={`live ${state}`}>{state}</span>
        <span class="space" />
        <NamespacePicker value={namespace} change={(ns) => setParams({ ns: ns || undefined })} />
      </header>
      <div class="bar filters">
        <label>
          Since{' '}
          <TextField value={since} size={12} change={(text) => setParams({ since: text || undefined })} />
        </label>
        {['resource', 'name', 'user'].map((f) => (
          <TextField
            key={f}
            aria-label={f}
            placeholder={f}
            value={params.get(f) ?? ''}
            change={(text) => setParams({ [f]: text || undefined })}
          />
        ))}
        <select aria-label="Type of change" value={params.get('type') ?? ''} onChange={(e) => setParams({ type: e.currentTarget.value || undefined })}>
          {['', 'Created', 'Updated', 'Deleted'].map((t) => (
            <option key={t} value={t}>
              {t || 'all changes'}
            </option>
          ))}
        </select>
        {params.get('type') === 'Deleted' && deleted.length ? (
          <button onClick={() => setBack(deleted)}>Undelete all {deleted.length}</button>
        ) : null}
      </div>
      {error ? <Problem error={error} /> : null}
      {changes.length ? (
        <ol class="timeline feed">
          {changes.map((c) => (
            <li key={`${c.resourceVersion}/${c.resource}/${c.namespace}/${c.name}`}>
              <span class="when" title={local(c.time)}>
                <Age time={c.time} />
              </span>
              {changeBadge(c)}
              <span class="who">
                <Target change={c} />
              </span>
              <span class="who">
                <strong>{who(c) || 'unknown'}</strong> <span class="dim">{how(c)}</span>
                {c.reason ? <span class="dim"> ({c.reason})</span> : null}
              </span>
              <span class="what">{changedText(c)}</span>
            </li>
          ))}
        </ol>
      ) : (
        <p class="empty">{state === 'loading' ? 'Loading' : 'Nothing has changed.'}</p>
      )}
      {back ? (
        <UndeleteAll
          deletions={back}
          namespace={namespace}
          resourceOf={(c) => resourceOf(app.discovery.resources, c)}
          close={() => setBack(null)}
        />
      ) : null}
    </section>
  );
}

const resourceOf = (all: Resource[], c: Change): Resource | undefined =>
  findByKey({ resources: all, stale: [] }, c.group ? `${c.resource ?? ''}.${c.group}` : (c.resource ?? ''));

function Target({ change: c }: { change: Change }): JSX.Element {
  const app = useApp();
  const r = resourceOf(app.discovery.resources, c);
  const text = `${c.resource ?? ''} ${[c.namespace, c.name].filter(Boolean).join('/')}`;
  return r ? <a href={objectLink(r, c.namespace, c.name ?? '', 'history')}>{text}</a> : <span>{text}</span>;
}
