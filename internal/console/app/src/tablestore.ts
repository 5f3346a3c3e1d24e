// A live list of a resource in the columns of the server: pages of a Table, then a watch of Tables. Rows are kept by the
// key of their object; changes of many events are shown at once, at most once a frame.

import { APIError, isAbort, query, requestTable, sleep, watch, WhileShown, type Column, type Table, type Value } from './api';
import { listPath, type Resource } from './discovery';

export interface Selection {
  namespace: string;
  labelSelector: string;
  fieldSelector: string;
}

export interface Row {
  key: string;
  namespace: string;
  name: string;
  /** Numbers, booleans, null, and text that is not long. */
  cells: (string | number | boolean | null)[];
  /** What the page needs of the object: its times. */
  object: { metadata: { creationTimestamp?: string; deletionTimestamp?: string } };
  /** Time at which the server sent the cells: what they call 5m ago was so then. */
  at: number;
  /** Time of the last change that was seen, for a moment's highlight. 0: it was in the list. */
  changed: number;
}

export type State = 'loading' | 'live' | 'waiting' | 'failed' | 'closed';

const PAGE = 500;

export class TableStore {
  columns: Column[] = [];
  rows = new Map<string, Row>();
  state: State = 'loading';
  error: unknown = null;
  /** generation changes with every change of the rows. */
  generation = 0;
  /** membership changes when there are other rows. A row whose object changes stays the same one, with other cells. */
  membership = 0;
  events = 0;

  private stop = new AbortController();
  private scheduled = false;
  /** Errors since a watch was of use. */
  private failures = 0;

  constructor(
    readonly resource: Resource,
    readonly selection: Selection,
    private readonly changed: () => void,
  ) {
    void this.run();
  }

  close(): void {
    this.state = 'closed';
    this.stop.abort();
  }

  private notify(): void {
    this.generation++;
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      if (this.state !== 'closed') this.changed();
    });
  }

  private path(parameters: Record<string, string | number | boolean | undefined>): string {
    const { namespace, labelSelector, fieldSelector } = this.selection;
    return listPath(this.resource, namespace) + query({ labelSelector, fieldSelector, ...parameters });
  }

  /** run lists and watches until close. After an end that it can go on from it continues, otherwise it begins again. */
  private async run(): Promise<void> {
    while (!this.stop.signal.aborted) {
      const shown = new WhileShown(this.stop.signal);
      try {
        await shown.begin();
        const revision = await this.list();
        if (!this.resource.verbs.includes('watch')) {
          this.state = 'waiting';
          this.notify();
          return;
        }
        await this.follow(revision, shown.signal);
      } catch (e) {
        if (this.stop.signal.aborted) return;
        if (isAbort(e)) continue; // the page was hidden: it lists again when it is shown
        const gone = e instanceof APIError && e.code === 410;
        this.failures++;
        if (!gone) {
          this.error = e;
          this.state = 'failed';
          this.notify();
          if (e instanceof APIError && [400, 401, 403, 404, 405].includes(e.code)) return;
        }
      } finally {
        shown.end();
      }
      await sleep(Math.min(30_000, 500 * 2 ** this.failures), this.stop.signal);
    }
  }

  private async list(): Promise<string> {
    const found = new Map<string, Row>();
    const first = this.rows.size === 0;
    for (let next = ''; ; ) {
      const page: Table = await requestTable(this.path({ limit: PAGE, continue: next }), this.stop.signal);
      const columns = columnsOf(page);
      if (columns.length) this.columns = columns;
      for (const row of rowsOf(page, 0)) found.set(row.key, row);
      next = textOf(page.metadata?.continue);
      if (first || !next) {
        // The rows are shown as they come. When the list is read again, the old ones stay until all are there.
        this.rows = found;
        this.membership++;
        this.error = null;
        this.state = next ? 'loading' : 'live';
        this.notify();
      }
      if (!next) return textOf(page.metadata?.resourceVersion);
    }
  }

  private async follow(revision: string, signal: AbortSignal): Promise<void> {
    for (let at = revision; ; ) {
      const began = Date.now();
      const path = this.path({ watch: 1, resourceVersion: at, allowWatchBookmarks: 'true', timeoutSeconds: 1800 });
      for await (const event of watch<Table>(path, signal, true)) {
        if (event.type === 'BOOKMARK') {
          at = versionOf(event.object) || at;
          continue;
        }
        at = versionOf(event.object) || at;
        for (const row of rowsOf(event.object, performance.now())) {
          this.events++;
          this.failures = 0;
          const known = this.rows.get(row.key);
          if (event.type === 'DELETED') this.rows.delete(row.key);
          else if (known) Object.assign(known, row);
          else this.rows.set(row.key, row);
          if (event.type === 'DELETED' || !known) this.membership++;
        }
        this.notify();
      }
      if (Date.now() - began > 10_000) this.failures = 0;
      else await sleep(1000, signal);
      signal.throwIfAborted();
    }
  }
}

/** Limits of what is shown: an extension API server may send anything. */
const MOST_COLUMNS = 100;
const LONGEST_CELL = 1000;

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

const cut = (text: string): string => (text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)} …` : text);

/** isPlainList reports whether a server does not make Tables of a resource and has sent the objects. */
const isPlainList = (table: Value): boolean => !table.rows && Array.isArray(table.items);

function columnsOf(table: Value): Column[] {
  if (isPlainList(table)) return ['Name', 'Age'].map((name) => ({ name, type: 'string', priority: 0 }));
  const all: Value[] = Array.isArray(table.columnDefinitions) ? table.columnDefinitions.slice(0, MOST_COLUMNS) : [];
  return all.map((c) => ({
    name: cut(textOf(c?.name)), type: textOf(c?.type), description: cut(textOf(c?.description)), priority: Number(c?.priority ?? 0) || 0,
  }));
}

/** objectsOf returns what the rows of a Table tell of, as rows. An object that is no Table is a row. */
function objectsOf(table: Value): { cells: unknown; object: Value }[] {
  const rows: Value[] = Array.isArray(table.rows) ? table.rows : [];
  if (rows.length || table.kind === 'Table') return rows.filter((r) => r && typeof r === 'object');
  const items: Value[] = isPlainList(table) ? table.items : table.metadata?.name ? [table] : [];
  return items.map((object) => ({ cells: [object?.metadata?.name, ''], object }));
}

function versionOf(table: Value): string {
  const last = objectsOf(table).at(-1);
  return textOf(last?.object?.metadata?.resourceVersion) || textOf(table.metadata?.resourceVersion);
}

function rowsOf(table: Value, changed: number): Row[] {
  return objectsOf(table).map(({ cells, object }) => {
    const m: Value = object?.metadata ?? {};
    const shown = (Array.isArray(cells) ? cells.slice(0, MOST_COLUMNS) : []).map((c: unknown) =>
      c === null || c === undefined ? null : typeof c === 'object' ? cut(JSON.stringify(c)) : typeof c === 'string' ? cut(c) : (c as number | boolean));
    const name = textOf(m.name) || String(shown[0] ?? '');
    const namespace = textOf(m.namespace);
    const times = { creationTimestamp: textOf(m.creationTimestamp), deletionTimestamp: textOf(m.deletionTimestamp) };
    return { key: `${namespace}/${name}`, namespace, name, cells: shown, object: { metadata: times }, at: Date.now(), changed };
  });
}
