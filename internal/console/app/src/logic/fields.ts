// Paths of fields: who owns which, and which changed. docs/history.md has their grammar, and internal/api/history/testdata/paths.json
// examples. Nothing parses a path: what is needed of each field is found while the object is walked.

import type { ManagedFields } from './kubernetes';
import { isMembers, type Members } from './values';

export interface Owner {
  manager: string;
  operation: string;
  subresource: string;
  time: string;
}

function ownerText(o: Owner): string {
  return o.subresource ? `${o.manager} (${o.operation}, ${o.subresource})` : `${o.manager} (${o.operation})`;
}

export const ownersText = (owners: Owner[]): string => owners.map(ownerText).join(', ');

/** MAX_NAME is the length in bytes of the longest name in a path, MAX_PATH that of a path below which fields are not told apart. */
const [MAX_NAME, MAX_PATH] = [253, 1024];

const bytesOf = (text: string): number => new TextEncoder().encode(text).length;

function shorten(name: string): string {
  const bytes = new TextEncoder().encode(name);
  return bytes.length <= MAX_NAME ? name : `${new TextDecoder().decode(bytes.slice(0, MAX_NAME)).replace(/\ufffd$/, '')}...`;
}

function segment(field: string): string {
  const name = shorten(field);
  return !name || /[./[\] ]/.test(name) ? `[${name}]` : `.${name}`;
}

export interface Field {
  /** key is the name of the field, or the index of the item. */
  key: string;
  path: string;
  value: unknown;
}

/** fieldsOf returns the fields of an object, or the items of a list, with their paths. What is too deep for a path has none. */
export function fieldsOf(value: unknown, path: string): Field[] {
  if (bytesOf(path) >= MAX_PATH) return [];
  if (Array.isArray(value)) {
    const names = value.map((item) => (isMembers(item) && typeof item.name === 'string' ? item.name : ''));
    const named = names.every(Boolean) && new Set(names).size === names.length;
    return value.map((item: unknown, i) => ({
      key: String(i), path: path + (named ? `[name=${shorten(names[i] ?? '')}]` : `[${i}]`), value: item,
    }));
  }
  return isMembers(value) ? Object.entries(value).map(([key, v]) => ({ key, path: path + segment(key), value: v })) : [];
}

interface Owned {
  owner: Owner;
  set: Members;
}

/** ownersOf returns who owns each field of an object, by path. A field that no manager names has the owners of what it is in. */
export function ownersOf(object: unknown, managed: ManagedFields[] | undefined): Map<string, Owner[]> {
  const found = new Map<string, Owner[]>();
  const visit = (value: unknown, path: string, sets: Owned[], above: Owner[]): void => {
    const own = sets.filter(({ set }) => '.' in set || !Object.keys(set).length).map(({ owner }) => owner);
    const owners = own.length ? own : above;
    if (path) found.set(path, owners);
    for (const field of fieldsOf(value, path)) {
      visit(field.value, field.path, sets.flatMap(({ owner, set }) => below(set, field, Array.isArray(value)).map((s) => ({ owner, set: s }))), owners);
    }
  };
  const owned = (managed ?? []).map((m) => ({
    owner: { manager: m.manager ?? '', operation: m.operation ?? '', subresource: m.subresource ?? '', time: m.time ?? '' }, set: m.fieldsV1 ?? {},
  }));
  visit(object, '', owned.filter(({ set }) => Object.keys(set).length), []);
  return found;
}

/** below returns what a set of managedFields has of a field: f:NAME, or of an item k:KEYS, v:VALUE, i:INDEX. */
function below(set: Members, { key, value }: Field, item: boolean): Members[] {
  const elements = item
    ? Object.keys(set).filter((element) => isElement(element, key, value))
    : [`f:${key}`].filter((element) => element in set);
  return elements.map((element) => (isMembers(set[element]) ? set[element] : {}));
}

function isElement(element: string, index: string, item: unknown): boolean {
  const text = element.slice(2);
  if (element.startsWith('i:')) return text === index;
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return false;
  }
  if (element.startsWith('v:')) return JSON.stringify(parsed) === JSON.stringify(item);
  return element.startsWith('k:') && isMembers(parsed) && isMembers(item) && Object.entries(parsed).every(([k, v]) => item[k] === v);
}

/** pathsOfLines returns the path of the field of each line of YAML, as dump writes it. */
export function pathsOfLines(object: unknown, yaml: string): string[] {
  const paths: string[] = [];
  const lines = yaml.split('\n');
  // Each member of the object is one line or a block that follows it; indentation tells where it ends.
  const visit = (value: unknown, path: string, from: number): number => {
    let at = from;
    for (const field of fieldsOf(value, path)) {
      if (at >= lines.length) break;
      if (field.value !== undefined) at = block(field.value, field.path, at, !Array.isArray(value));
    }
    return at;
  };
  const depth = (line: number): number => (lines[line] ?? '').search(/\S|$/);
  const block = (value: unknown, path: string, from: number, named: boolean): number => {
    const composite = typeof value === 'object' && value !== null && Object.keys(value).length > 0;
    if (composite && !named) return visit(value, path, from); // its first member is on the line of the dash
    paths[from] = path;
    if (composite) return visit(value, path, from + 1);
    let at = from + 1;
    // Text of several lines is indented further.
    while (at < lines.length && typeof value === 'string' && value.includes('\n') && (lines[at] === '' || depth(at) > depth(from))) {
      paths[at++] = path;
    }
    return at;
  };
  visit(object, '', 0);
  return paths;
}
