// Tables: the rows and columns that a server makes of a list.

import type { Column, Value } from './kubernetes';

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

/** Limits of what is shown: an extension API server may send anything. */
const MOST_COLUMNS = 100;
const LONGEST_CELL = 1000;

export const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

const cut = (text: string): string => (text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)} …` : text);

/** isPlainList reports whether a server does not make Tables of a resource and has sent the objects. */
const isPlainList = (table: Value): boolean => !table.rows && Array.isArray(table.items);

export function columnsOf(table: Value): Column[] {
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

export function versionOf(table: Value): string {
  const last = objectsOf(table).at(-1);
  return textOf(last?.object?.metadata?.resourceVersion) || textOf(table.metadata?.resourceVersion);
}

export function rowsOf(table: Value, changed: number): Row[] {
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
