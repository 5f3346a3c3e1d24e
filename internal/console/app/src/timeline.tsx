// What changed in a namespace, or in all, and by whom; and what was deleted there, to bring it back.

import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { isAbort, messageOf, query, request, watch } from './api';
import { attempt, useApp } from './app';
import { findByKey, type Resource } from './discovery';
import { changeBadge, changedText, ownerExists } from './history';
import { NamespacePicker } from './namespaces';
import { asOf, historyOf, how, orderOf, undelete, who, type Change, type ChangePage } from './past';
import { objectLink, rememberNamespace, setParams, useLocation } from './router';
import { local } from './time';
import { Age, Badge, Dialog, Problem, SimpleTable, TextField } from './ui';

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
    const run = async (): Promise<void> => {
      let revision = '';
      for (let next = ''; ; ) {
        const page = await request<ChangePage>(path(namespace) + query({ since: next ? '' : since, fieldSelector: selector, limit: 500, continue: next }), {
          signal: stop.signal,
        });
        setChanges((old) => [...(page.items ?? []).reverse(), ...old].slice(0, KEPT));
        next = page.metadata?.continue ?? '';
        revision = page.metadata?.resourceVersion ?? revision;
        if (!next) break;
      }
      setState('live');
      let waiting: Change[] = [];
      for await (const event of watch<Change>(path(namespace) + query({ watch: true, resourceVersion: revision, fieldSelector: selector }), stop.signal)) {
        if (event.type !== 'ADDED') continue;
        if (!waiting.length) {
          requestAnimationFrame(() => {
            const all = waiting.reverse();
            waiting = [];
            setChanges((old) => [...all, ...old].slice(0, KEPT));
          });
        }
        waiting.push(event.object);
      }
      setState('ended');
    };
    run().catch((e: unknown) => {
      if (isAbort(e) || stop.signal.aborted) return;
      setError(e);
      setState('ended');
    });
    return () => stop.abort();
  }, [namespace, since, selector]);
  const deleted = changes.filter((c) => c.type === 'Deleted');
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
      {back ? <UndeleteAll changes={back} resourceOf={(c) => resourceOf(app.discovery.resources, c)} close={() => setBack(null)} /> : null}
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

interface Outcome {
  name: string;
  ok: boolean;
  text: string;
}

/** What a controller makes again, and what says what was: these do not come back with the others. */
const SKIPPED = /^(events|leases|endpoints|endpointslices|controllerrevisions|pods|replicasets)$/;

/** UndeleteAll brings back the objects of many changes, owners before what they own. */
function UndeleteAll(props: { changes: Change[]; resourceOf: (c: Change) => Resource | undefined; close: () => void }): JSX.Element {
  const app = useApp();
  const [results, setResults] = useState<Outcome[]>([]);
  const [busy, setBusy] = useState(false);
  const [tried, setTried] = useState(false);
  const run = async (dryRun: boolean): Promise<void> => {
    setBusy(true);
    setResults([]);
    const uids = new Map<string, string>();
    const seen = new Set<string>();
    const kind = (c: Change): number => orderOf(props.resourceOf(c)?.kind ?? '*');
    const sorted = [...props.changes].sort((a, b) => kind(a) - kind(b) || Number(a.resourceVersion) - Number(b.resourceVersion));
    await attempt('Undelete', async () => {
      for (const c of sorted) {
        const name = `${c.resource ?? ''} ${[c.namespace, c.name].filter(Boolean).join('/')}`;
        if (seen.has(name)) continue;
        seen.add(name);
        const outcome = await one(c, dryRun, uids).catch((e: unknown) => ({ ok: false, text: messageOf(e) }));
        setResults((old) => [...old, { name, ...outcome }]);
      }
    });
    setBusy(false);
    setTried(true);
  };
  const one = async (c: Change, dryRun: boolean, uids: Map<string, string>): Promise<{ ok: boolean; text: string }> => {
    const r = props.resourceOf(c);
    if (!r) return { ok: false, text: 'the server does not have its resource any more' };
    if (SKIPPED.test(r.plural)) return { ok: false, text: 'left out: its owner makes it again, or it says what was' };
    const page = await historyOf(r, c.namespace ?? '', c.name ?? '', '', false);
    const items = page.items ?? [];
    const at = items.findIndex((i) => i.resourceVersion === c.resourceVersion);
    const before = items[at + 1];
    if (at < 0 || !before) return { ok: false, text: 'the version before its deletion is not kept' };
    const was = await asOf(r, c.namespace ?? '', c.name ?? '', before.resourceVersion);
    const outcome = await undelete(r, was, dryRun, uids, ownerExists(app.discovery, c.namespace));
    return { ok: outcome.ok, text: outcome.text || (outcome.ok ? (dryRun ? 'would come back' : 'is back') : '') };
  };
  return (
    <Dialog wide title={`Undelete ${props.changes.length} objects`} close={props.close}>
      <p>
        Each object is created as it was before its deletion, by ordinary requests of yours, owners first. A whole namespace with all its
        objects: <code>kubectl history undelete namespace NAME</code>.
      </p>
      <div class="bar">
        <button disabled={busy} onClick={() => void run(true)}>
          Try (dry run)
        </button>
        <button class="primary" disabled={busy || !tried} onClick={() => void run(false)}>
          Undelete
        </button>
      </div>
      <SimpleTable
        label="Results"
        empty=""
        head={['Object', 'Result', 'Message']}
        rows={results.map((r) => [r.name, <Badge tone={r.ok ? 'good' : 'warn'}>{r.ok ? 'ok' : 'no'}</Badge>, r.text])}
      />
    </Dialog>
  );
}
