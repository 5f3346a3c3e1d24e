// A live list of a resource in the columns of the server: pages of a Table, then a watch of Tables. Rows are kept by the
// key of their object; changes of many events are shown at once, at most once a frame.

import { APIError, isAbort, type Column, type Table } from '../logic/kubernetes';
import { query } from '../logic/links';
import { listPath, type Resource } from '../logic/resources';
import { columnsOf, rowsOf, textOf, versionOf, type Row } from '../logic/tables';
import { requestTable, sleep } from './request';
import { watch, WhileShown } from './watch';

export interface Selection {
  namespace: string;
  labelSelector: string;
  fieldSelector: string;
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
