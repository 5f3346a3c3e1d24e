// Tables: the rows and columns that a server makes of a list.

import type { Column } from './kubernetes';
import { at, isMembers, listAt, textAt } from './values';

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

const cut = (text: string): string => (text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)} …` : text);

/** isPlainList reports whether a server does not make Tables of a resource and has sent the objects. */
const isPlainList = (table: unknown): boolean => !at(table, 'rows') && Array.isArray(at(table, 'items'));

/** columnsOf returns the columns of a Table. An event of a watch has none after the first one. */
export function columnsOf(table: unknown): Column[] {
  if (isPlainList(table)) return ['Name', 'Age'].map((name) => ({ name, type: 'string', priority: 0 }));
  return listAt(table, 'columnDefinitions').slice(0, MOST_COLUMNS).map((c) => ({
    name: cut(textAt(c, 'name')), type: textAt(c, 'type'), description: cut(textAt(c, 'description')), priority: Number(at(c, 'priority')) || 0,
  }));
}

/** objectsOf returns what the rows of a Table tell of, as rows. An object that is no Table is a row. */
function objectsOf(table: unknown): { cells: unknown; object: unknown }[] {
  const rows = listAt(table, 'rows');
  if (rows.length || at(table, 'kind') === 'Table') return rows.filter(isMembers).map(({ cells, object }) => ({ cells, object }));
  const items = isPlainList(table) ? listAt(table, 'items') : at(table, 'metadata', 'name') ? [table] : [];
  return items.map((object) => ({ cells: [at(object, 'metadata', 'name'), ''], object }));
}

/** versionOf returns the revision of the last object of a Table, or of the list. */
export const versionOf = (table: unknown): string =>
  textAt(objectsOf(table).at(-1)?.object, 'metadata', 'resourceVersion') || textAt(table, 'metadata', 'resourceVersion');

/** rowsOf returns the rows of a Table. changed is the time of the change that it is of, 0 for a list. */
export function rowsOf(table: unknown, changed: number): Row[] {
  return objectsOf(table).map(({ cells, object }) => {
    const member = (name: string): string => textAt(object, 'metadata', name);
    const shown = listAt({ cells }, 'cells').slice(0, MOST_COLUMNS).map((c) =>
      c === null || c === undefined ? null : typeof c === 'object' ? cut(JSON.stringify(c)) : typeof c === 'string' ? cut(c) : (c as number | boolean));
    const name = member('name') || String(shown[0] ?? '');
    const namespace = member('namespace');
    const times = { creationTimestamp: member('creationTimestamp'), deletionTimestamp: member('deletionTimestamp') };
    return { key: `${namespace}/${name}`, namespace, name, cells: shown, object: { metadata: times }, at: Date.now(), changed };
  });
}
