// The live table of a resource.

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { TableStore } from '../client/tablestore';
import { AGO, durationOf, isSince, sinceOf, sortKey } from '../logic/cells';
import { textOf } from '../logic/format';
import { link, objectLink } from '../logic/links';
import { keyOf, type Resource } from '../logic/resources';
import { RowOrder } from '../logic/roworder';
import { isFailing, toneOf } from '../logic/status';
import type { Row } from '../logic/tables';
import { useApp } from '../parts/app';
import { isTyping } from '../parts/keys';
import { NamespacePicker } from '../parts/namespaces';
import { currentNamespace, go, rememberNamespace, setParams, useLocation } from '../parts/router';
import { Age, Badge, Check, Problem, TextField } from '../parts/ui';
import { heightOf, useWindow } from '../parts/window';

const ROW_HEIGHT = 28;

function isAgeColumn(name: string): boolean {
  return name === 'Age';
}

export function ResourceList({ resource }: { resource: Resource }): JSX.Element {
  const { params } = useLocation();
  const namespace = params.get('ns') ?? '';
  const labelSelector = params.get('labels') ?? '';
  const fieldSelector = params.get('fields') ?? '';
  const search = params.get('q') ?? '';
  const failing = params.get('failing') === '1';
  const sort = params.get('sort') ?? '';
  const wide = params.get('wide') === '1';
  const [, redraw] = useState(0);
  const store = useRef<TableStore | null>(null);
  const order = useRef<RowOrder | null>(null);
  order.current ??= new RowOrder(() => redraw((n) => n + 1));
  const app = useApp();

  useEffect(() => () => order.current?.close(), []);
  useEffect(() => {
    if (resource.namespaced) rememberNamespace(namespace);
    const s = new TableStore(resource, { namespace, labelSelector, fieldSelector }, () => redraw((n) => n + 1));
    store.current = s;
    redraw((n) => n + 1);
    return () => s.close();
  }, [resource, namespace, labelSelector, fieldSelector]);

  const s = store.current;
  const columns = s?.columns ?? [];
  const shown = columns.map((c, i) => ({ ...c, i })).filter((c) => wide || c.priority === 0);
  const down = sort.startsWith('-');
  const name = down ? sort.slice(1) : sort;
  const index = columns.findIndex((c) => c.name === name);
  const by = (r: Row): unknown => {
    if (name === 'Namespace') return r.namespace;
    if (isAgeColumn(name)) return -Date.parse(r.object.metadata.creationTimestamp ?? '') || 0;
    const column = columns[index];
    return column && sortKey(column, r.cells[index], r.at);
  };
  const rows = order.current.rows(s, {
    text: search.toLowerCase(), down, key: JSON.stringify([failing, sort, index]),
    only: failing ? (r) => isFailing(r, columns) : undefined,
    by: name && (index >= 0 || name === 'Namespace') ? by : undefined,
  });

  const showNamespace = resource.namespaced && !namespace;
  const total = s?.rows.size ?? 0;
  return (
    <section class="list">
      <header class="bar">
        <h1>{resource.kind}<span class="dim group">{resource.group || 'core'}</span></h1>
        <span class="count" role="status" data-testid="count">
          {s?.state === 'loading' ? `${total} …` : rows.length === total ? `${total}` : `${rows.length} of ${total}`}
        </span>
        <Live state={s?.state ?? 'loading'} />
        <span class="space" />
        {resource.namespaced ? <NamespacePicker value={namespace} change={(ns) => setParams({ ns: ns || undefined })} /> : null}
        {resource.verbs.includes('create') ? (
          <a class="button" href={link(['create'], { kind: keyOf(resource), ns: namespace || undefined })}>Create</a>
        ) : null}
      </header>
      <div class="bar filters">
        <input
          type="search"
          id="search"
          placeholder="Name  ( / )"
          aria-label="Filter by name"
          value={search}
          onInput={(e) => setParams({ q: e.currentTarget.value || undefined })}
          onKeyDown={(e) => {
            if (e.key !== 'Enter' && e.key !== 'ArrowDown') return;
            e.preventDefault();
            e.stopPropagation();
            e.currentTarget.blur();
          }}
        />
        <Selector label="Labels" hint="app=web,tier!=db" value={labelSelector} name="labels" />
        <Selector label="Fields" hint="spec.nodeName=n1" value={fieldSelector} name="fields" />
        <Check checked={failing} change={(on) => setParams({ failing: on ? '1' : undefined })}>Only what is failing</Check>
        <Check checked={wide} change={(on) => setParams({ wide: on ? '1' : undefined })}>All columns</Check>
        {app.server.history && resource.namespaced ? (
          <a href={link(['timeline'], { ns: namespace || undefined, resource: resource.plural })}>What changed</a>
        ) : null}
      </div>
      {s?.error ? <Problem error={s.error} /> : null}
      {s?.error && !columns.length ? null : (
        <Rows
          resource={resource} rows={rows} columns={shown} showNamespace={showNamespace} sort={sort}
          loading={s?.state !== 'live' && s?.state !== 'waiting'}
        />
      )}
    </section>
  );
}

function Live({ state }: { state: string }): JSX.Element {
  const text = { loading: 'loading', live: 'live', waiting: 'not live', failed: 'not live', closed: '' }[state] ?? state;
  return <span class={`live ${state}`}>{text}</span>;
}

/** Selector is a field whose value counts when it is left or at Enter: each value is a request. */
function Selector(props: { label: string; hint: string; value: string; name: string }): JSX.Element {
  return (
    <TextField
      aria-label={`${props.label} selector`}
      placeholder={`${props.label}: ${props.hint}`}
      value={props.value}
      change={(text) => setParams({ [props.name]: text || undefined })}
    />
  );
}

interface ShownColumn {
  name: string;
  type: string;
  description?: string;
  i: number;
}

function Rows(props: {
  resource: Resource;
  rows: Row[];
  columns: ShownColumn[];
  showNamespace: boolean;
  sort: string;
  loading: boolean;
}): JSX.Element {
  const { rows, columns, resource } = props;
  const box = useRef<HTMLDivElement>(null);
  const [cursor, setCursor] = useState(-1);
  const { first, last, height, place } = useWindow(box, rows.length, ROW_HEIGHT);
  const open = (row: Row | undefined): void => {
    if (row) go(objectLink(resource, row.namespace, row.name));
  };
  const move = (to: number): void => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    setCursor(at);
    const element = box.current;
    if (!element) return;
    const y = at * ROW_HEIGHT;
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y > element.scrollTop + element.clientHeight - 2 * ROW_HEIGHT) element.scrollTop = y - element.clientHeight + 2 * ROW_HEIGHT;
  };
  const key = (e: KeyboardEvent): void => {
    if (isTyping(e) || document.querySelector('dialog[open]')) return;
    const page = Math.floor(height / ROW_HEIGHT) - 1;
    const moves: Record<string, number> = {
      ArrowDown: cursor + 1, j: cursor + 1, ArrowUp: cursor - 1, k: cursor - 1,
      PageDown: cursor + page, PageUp: cursor - page, Home: 0, End: rows.length - 1,
    };
    if (e.key === 'Enter' && e.target instanceof Element && e.target.closest('a, button, summary')) return;
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const to = moves[e.key];
    if (to !== undefined) {
      e.preventDefault();
      move(to);
    } else if (e.key === 'Enter') open(rows[cursor]);
  };
  const latest = useRef(key);
  latest.current = key;
  useEffect(() => {
    const down = (e: KeyboardEvent): void => latest.current(e);
    addEventListener('keydown', down);
    return () => removeEventListener('keydown', down);
  }, []);
  const heads = [...(props.showNamespace ? [{ name: 'Namespace', i: -1, description: '' }] : []), ...columns];
  const now = performance.now();
  return (
    <div class="rows" ref={box} tabIndex={0} role="region" aria-label={`${resource.kind} objects`} onScroll={place}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {heads.map((c) => {
              const up = props.sort === c.name;
              const down = props.sort === `-${c.name}`;
              return (
                <th key={c.i} scope="col" title={c.description} aria-sort={up ? 'ascending' : down ? 'descending' : undefined}>
                  <button class="quiet" onClick={() => setParams({ sort: up ? `-${c.name}` : down ? undefined : c.name })}>
                    {c.name}
                    {up ? ' ↑' : down ? ' ↓' : ''}
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {first > 0 ? <Spacer rows={first} /> : null}
          {rows.slice(first, last).map((row, n) => {
            const at = first + n;
            const classes = [
              at === cursor ? 'cursor' : '',
              row.changed && now - row.changed < 1500 ? 'changed' : '',
              row.object.metadata.deletionTimestamp ? 'leaving' : '',
            ].join(' ');
            return (
              <tr key={row.key} class={classes} aria-rowindex={at + 2} onClick={() => setCursor(at)} onDblClick={() => open(row)}>
                {props.showNamespace ? <td class="dim">{row.namespace}</td> : null}
                {columns.map((c) => <Cell key={c.i} resource={resource} row={row} column={c} value={row.cells[c.i]} first={c.i === 0} />)}
              </tr>
            );
          })}
          {last < rows.length ? <Spacer rows={rows.length - last} /> : null}
        </tbody>
      </table>
      {!rows.length && !props.loading ? <p class="empty">Nothing here{currentNamespace() ? ` in ${currentNamespace()}` : ''}.</p> : null}
    </div>
  );
}

/** Spacer takes the space of rows that are not shown. */
const Spacer = ({ rows }: { rows: number }): JSX.Element => (
  <tr aria-hidden="true" class="spacer"><td ref={heightOf(rows * ROW_HEIGHT)} /></tr>
);

function Cell(props: { resource: Resource; row: Row; column: ShownColumn; value: unknown; first: boolean }): JSX.Element {
  const { row, value, column, first } = props;
  const text = textOf(value);
  const times = timesOf(row, column, text);
  if (first) {
    return <th scope="row"><a href={objectLink(props.resource, row.namespace, row.name)}>{times ?? (text || row.name)}</a></th>;
  }
  if (times) return <td class={isSince(column) ? 'dim' : undefined}>{times}</td>;
  if (durationOf(text) !== undefined && !/^\d+m?$/.test(text)) {
    return <td class="as-of" title={`as the server sent it at ${new Date(row.at).toLocaleTimeString()}`}>{text}</td>;
  }
  const deleting = /^(status|phase)$/i.test(column.name) && row.object.metadata.deletionTimestamp;
  const tone = deleting ? 'warn' : /^(status|phase|state|ready|available)$/i.test(column.name) ? toneOf(text) : undefined;
  return <td title={text.length > 40 ? text : undefined}>{tone ? <Badge tone={tone}>{deleting ? 'Terminating' : text}</Badge> : text}</td>;
}

/** timesOf returns a text that says how long ago something was, as one that grows. It is null for other text. */
function timesOf(row: Row, column: ShownColumn, text: string): JSX.Element | null {
  const created = isAgeColumn(column.name) && durationOf(text) !== undefined && row.object.metadata.creationTimestamp;
  const since = created ? Date.parse(created) : sinceOf(column, text, row.at);
  if (since !== undefined && !Number.isNaN(since)) return <Age time={new Date(since).toISOString()} />;
  const ago = AGO.exec(text);
  const [, long = ''] = ago ?? [];
  const past = durationOf(long);
  if (!ago || past === undefined) return null;
  return (
    <>
      {text.slice(0, ago.index + 1)}
      <Age time={new Date(row.at - 1000 * past).toISOString()} />
      {text.slice(ago.index + 1 + long.length)}
    </>
  );
}
