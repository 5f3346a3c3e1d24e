// What changed in a namespace, or in all, and by whom; and what was deleted there, to bring it back.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { request } from '../client/request';
import { planOfDeleted } from '../client/undelete';
import { follow } from '../client/watch';
import { deletedObjects, how, who, type Change, type ChangePage } from '../logic/changes';
import { local } from '../logic/format';
import { objectLink, query } from '../logic/links';
import { findByKey, type Resource } from '../logic/resources';
import { useApp } from '../parts/app';
import { changeBadge, changedText } from '../parts/change';
import { NamespacePicker } from '../parts/namespaces';
import { rememberNamespace, setParams, useLocation } from '../parts/router';
import { attempt } from '../parts/toasts';
import { Age, Problem, TextField } from '../parts/ui';
import { UndeleteAll } from '../parts/undeleteall';
import { heightOf, useWindow } from '../parts/window';

/** A request for a part of the changes, the changes that are shown at first, and how many the page keeps. */
const PAGE = 200;
const KEPT = 5000;

const ROW_HEIGHT = 28;
const NARROW_HEIGHT = 92; // as in style.css

function path(namespace: string): string {
  const base = '/apis/history.keelson.dev/v1alpha1';
  return namespace ? `${base}/namespaces/${encodeURIComponent(namespace)}/changes` : `${base}/changes`;
}

/** Feed is a window of the changes, the newest first. older is the token of those that were not read, '' if there are none. */
interface Feed {
  changes: Change[];
  older: string;
}

const NOTHING: Feed = { changes: [], older: '' };

export function Timeline(): JSX.Element {
  const { params } = useLocation();
  const namespace = params.get('ns') ?? '';
  const since = params.get('since') ?? '1h';
  const fields = [
    ['resource', params.get('resource')], ['user', params.get('user')], ['type', params.get('type')], ['name', params.get('name')],
  ].filter((f): f is [string, string] => !!f[1]);
  const selector = fields.map(([k, v]) => `${k}=${v}`).join(',');
  const [feed, setFeed] = useState<Feed>(NOTHING);
  const [error, setError] = useState<unknown>(null);
  const [state, setState] = useState('loading');
  const [back, setBack] = useState(false);
  const [reading, setReading] = useState(false);
  const stop = useRef(new AbortController());
  const page = (next: string): Promise<ChangePage> =>
    request<ChangePage>(path(namespace) + query({ since, fieldSelector: selector, limit: PAGE, continue: next, newestFirst: true }), { signal: stop.current.signal });
  /** more reads further changes until there are enough of them, or none are left. A part may have none: the server has looked at many. */
  const more = async (from: Feed, enough: number): Promise<Feed & { revision: string }> => {
    let { changes, older } = from;
    for (let revision = ''; ; ) {
      const part = await page(older);
      changes = [...changes, ...(part.items ?? [])];
      older = part.metadata?.continue ?? '';
      revision ||= part.metadata?.resourceVersion ?? '';
      if (!older || changes.length >= enough) return { changes, older, revision };
    }
  };
  useEffect(() => {
    rememberNamespace(namespace);
    stop.current = new AbortController();
    const { signal } = stop.current;
    setFeed(NOTHING);
    setError(null);
    setState('loading');
    let waiting: Change[] = [];
    const show = (): void => {
      const all = waiting.reverse();
      waiting = [];
      setFeed((old) => {
        const changes = [...all, ...old.changes];
        return changes.length > KEPT ? { changes: changes.slice(0, KEPT), older: CUT } : { ...old, changes };
      });
    };
    void follow<Change>(
      {
        path: path(namespace), parameters: { fieldSelector: selector }, revisionOf: (c) => c.resourceVersion,
        read: async () => {
          const first = await more(NOTHING, 1);
          setFeed(first);
          return first.revision;
        },
        resumed: () => {
          setError(null);
          setState('live');
        },
        event: (type, change) => {
          if (type !== 'ADDED') return;
          if (!waiting.length) requestAnimationFrame(show);
          waiting.push(change);
          if (waiting.length > 2 * KEPT) waiting = waiting.slice(-KEPT); // nothing is drawn while the page is hidden
        },
        failed: (e) => {
          setError(e);
          setState('no connection');
        },
      },
      signal,
    );
    return () => stop.current.abort();
  }, [namespace, since, selector]);
  const { changes, older } = feed;
  const canRead = older !== '' && older !== CUT && changes.length < KEPT;
  /** read reads older changes, which are joined to those that have come meanwhile. */
  const read = async (enough: number): Promise<Change[]> => {
    setReading(true);
    try {
      const found = await more({ changes: [], older }, enough);
      setFeed((now) => ({ changes: [...now.changes, ...found.changes], older: found.older }));
      return [...changes, ...found.changes];
    } finally {
      setReading(false);
    }
  };
  const deleted = deletedObjects(changes);
  return (
    <section class="timeline-view">
      <header class="bar">
        <h1>What changed</h1>
        <span class="count" role="status">{older ? `the newest ${changes.length}` : changes.length}</span>
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
          {['', 'Created', 'Updated', 'Deleted'].map((t) => <option key={t} value={t}>{t || 'all changes'}</option>)}
        </select>
        {params.get('type') === 'Deleted' && deleted.length ? (
          <button disabled={reading} onClick={() => setBack(true)}>Undelete all {older ? '' : deleted.length}</button>
        ) : null}
      </div>
      {error ? <Problem error={error} /> : null}
      {changes.length ? (
        <Rows changes={changes} more={() => canRead && !reading && !error && void attempt('Older changes', () => read(PAGE))}>
          {reading ? <span class="dim" role="status">Reading older changes</span> : canRead ? (
            <button onClick={() => void attempt('Older changes', () => read(PAGE))}>Older changes</button>
          ) : older ? (
            <span class="dim">There are older changes. The page keeps {KEPT}: choose a namespace, a resource or a user.</span>
          ) : null}
        </Rows>
      ) : <p class="empty">{state === 'loading' ? 'Loading' : 'Nothing has changed.'}</p>}
      {back ? (
        <UndeleteAll
          title={`what was deleted${namespace ? ` in ${namespace}` : ''} since ${since}`}
          plan={() => planOfDeleted(namespace, since, selector)}
          close={() => setBack(false)}
        />
      ) : null}
    </section>
  );
}

/** CUT is in place of the token of older changes when the page has dropped some. */
const CUT = 'cut';

/** Rows shows changes, of which only those in sight are in the document. more is called when the last one is near. */
function Rows({ changes, more, children }: { changes: Change[]; more: () => void; children: ComponentChildren }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const height = matchMedia('(max-width: 760px)').matches ? NARROW_HEIGHT : ROW_HEIGHT;
  const { first, last, place } = useWindow(box, changes.length, height);
  return (
    <div
      class="scroll feed-box" ref={box} tabIndex={0} role="region" aria-label="Changes"
      onScroll={({ currentTarget: e }) => {
        place();
        if (e.scrollTop > 0 && e.scrollTop + 3 * e.clientHeight > e.scrollHeight) more();
      }}
    >
      <ol class="feed">
        {first > 0 ? <li ref={heightOf(first * height)} class="space" aria-hidden="true" /> : null}
        {changes.slice(first, last).map((c) => (
          <li key={`${c.resourceVersion}/${c.resource}/${c.namespace}/${c.name}`}>
            <span class="when" title={local(c.time)}><Age time={c.time} /></span>
            <span>{changeBadge(c)}</span>
            <span class="who"><Target change={c} /></span>
            <span class="who">
              <strong>{who(c) || 'unknown'}</strong> <span class="dim">{how(c)}</span>
              {c.reason ? <span class="dim"> ({c.reason})</span> : null}
            </span>
            <span class="what">{changedText(c)}</span>
          </li>
        ))}
        {last < changes.length ? <li ref={heightOf((changes.length - last) * height)} class="space" aria-hidden="true" /> : null}
      </ol>
      {children}
    </div>
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
