// A live list of a resource in the columns of the server: pages of a Table, then a watch of Tables. Rows are kept by the
// key of their object; changes of many events are shown at once, at most once a frame.

import type { Column } from '../logic/kubernetes';
import { query } from '../logic/links';
import { listPath, type Resource } from '../logic/resources';
import { columnsOf, rowsOf, versionOf, type Row } from '../logic/tables';
import { textAt } from '../logic/values';
import { request, TABLE_TYPE } from './request';
import { follow } from './watch';

export interface Selection {
  namespace: string;
  labelSelector: string;
  fieldSelector: string;
}

/** waiting: all is read, and the resource cannot be watched. failed: it is tried again, if the error is not final. */
export type State = 'loading' | 'live' | 'waiting' | 'failed' | 'closed';

const PAGE = 500;

/** TableStore keeps the rows of a resource as they are now, until it is closed. changed is called at most once a frame. */
export class TableStore {
  columns: Column[] = [];
  rows = new Map<string, Row>();
  state: State = 'loading';
  error: unknown = null;
  /** generation changes with every change of the rows. */
  generation = 0;
  /** membership changes when there are other rows. A row whose object changes stays the same one, with other cells. */
  membership = 0;

  private stop = new AbortController();
  private scheduled = false;

  constructor(
    private readonly resource: Resource,
    { namespace, labelSelector, fieldSelector }: Selection,
    private readonly changed: () => void,
  ) {
    const path = listPath(resource, namespace);
    const selectors = { labelSelector, fieldSelector };
    void follow<unknown>(
      {
        path, parameters: selectors, accept: TABLE_TYPE, revisionOf: versionOf,
        read: () => this.list(path, selectors),
        event: (type, table) => this.take(type === 'DELETED', table),
        failed: (e) => this.become('failed', e),
      },
      this.stop.signal,
    );
  }

  close(): void {
    this.state = 'closed';
    this.stop.abort();
  }

  private become(state: State, error: unknown): void {
    this.state = state;
    this.error = error;
    this.notify();
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

  /** list reads the rows, which are shown as they come. When they are read again, the old ones stay until all are there. */
  private async list(path: string, selectors: Omit<Selection, 'namespace'>): Promise<string | undefined> {
    const found = new Map<string, Row>();
    const first = this.rows.size === 0;
    const watchable = this.resource.verbs.includes('watch');
    for (let next = ''; ; ) {
      const page = await request(path + query({ ...selectors, limit: PAGE, continue: next }), { accept: TABLE_TYPE, signal: this.stop.signal });
      const columns = columnsOf(page);
      if (columns.length) this.columns = columns;
      for (const row of rowsOf(page, 0)) found.set(row.key, row);
      next = textAt(page, 'metadata', 'continue');
      if (first || !next) {
        this.rows = found;
        this.membership++;
        this.become(next ? 'loading' : watchable ? 'live' : 'waiting', null);
      }
      if (!next) return watchable ? textAt(page, 'metadata', 'resourceVersion') : undefined;
    }
  }

  private take(deleted: boolean, table: unknown): void {
    for (const row of rowsOf(table, performance.now())) {
      const known = this.rows.get(row.key);
      if (deleted) this.rows.delete(row.key);
      else if (known) Object.assign(known, row);
      else this.rows.set(row.key, row);
      if (deleted || !known) this.membership++;
    }
    this.notify();
  }
}
