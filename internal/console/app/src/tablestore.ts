// A live list of a resource in the columns of the server: pages of a Table, then a watch of Tables. Rows are kept by the
// key of their object; changes of many events are shown at once, at most once a frame.

import { APIError, isAbort, messageOf, query, requestTable, sleep, watch, type Column, type Table, type TableRow } from './api';
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
  cells: TableRow['cells'];
  object: TableRow['object'];
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
  events = 0;

  private stop = new AbortController();
  private scheduled = false;

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
    for (let failures = 0; !this.stop.signal.aborted; ) {
      try {
        const revision = await this.list();
        failures = 0;
        if (!this.resource.verbs.includes('watch')) {
          this.state = 'waiting';
          this.notify();
          return;
        }
        await this.follow(revision);
      } catch (e) {
        if (isAbort(e) || this.stop.signal.aborted) return;
        const gone = e instanceof APIError && e.code === 410;
        if (!gone) {
          failures++;
          this.error = e;
          this.state = 'failed';
          this.notify();
          if (e instanceof APIError && [400, 401, 403, 404, 405].includes(e.code)) return;
        }
      }
      await sleep(Math.min(30_000, 500 * 2 ** failures), this.stop.signal);
    }
  }

  private async list(): Promise<string> {
    const found = new Map<string, Row>();
    const first = this.rows.size === 0;
    for (let next = ''; ; ) {
      const page: Table = await requestTable(this.path({ limit: PAGE, continue: next }), this.stop.signal);
      if (page.columnDefinitions?.length) this.columns = page.columnDefinitions;
      for (const r of page.rows ?? []) {
        const row = rowOf(r, 0);
        found.set(row.key, row);
      }
      next = page.metadata.continue ?? '';
      if (first || !next) {
        // The rows are shown as they come. When the list is read again, the old ones stay until all are there.
        this.rows = found;
        this.error = null;
        this.state = next ? 'loading' : 'live';
        this.notify();
      }
      if (!next) return page.metadata.resourceVersion ?? '';
    }
  }

  private async follow(revision: string): Promise<void> {
    for (let at = revision; !this.stop.signal.aborted; ) {
      const began = Date.now();
      const path = this.path({ watch: 1, resourceVersion: at, allowWatchBookmarks: 'true', timeoutSeconds: 1800 });
      for await (const event of watch<Table>(path, this.stop.signal, true)) {
        if (event.type === 'BOOKMARK') {
          const object = event.object as unknown as { metadata?: { resourceVersion?: string }; rows?: TableRow[] };
          at = object.rows?.[0]?.object.metadata.resourceVersion ?? object.metadata?.resourceVersion ?? at;
          continue;
        }
        for (const r of event.object.rows ?? []) {
          const row = rowOf(r, performance.now());
          at = r.object.metadata.resourceVersion ?? at;
          this.events++;
          if (event.type === 'DELETED') this.rows.delete(row.key);
          else this.rows.set(row.key, row);
        }
        this.notify();
      }
      if (Date.now() - began < 1000) await sleep(1000, this.stop.signal);
    }
  }

  message(): string {
    return this.error ? messageOf(this.error) : '';
  }
}

function rowOf(r: TableRow, changed: number): Row {
  const m = r.object?.metadata ?? {};
  const name = m.name ?? String(r.cells[0] ?? '');
  const namespace = m.namespace ?? '';
  return { key: `${namespace}/${name}`, namespace, name, cells: r.cells, object: r.object, changed };
}
