// Paths of fields: who owns which, and which changed. A path is written as in Kubernetes' messages:
// .spec.containers[name=web].image

import type { ManagedFields } from './kubernetes';
import { isMembers } from './values';

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

/** ownersByPath returns who owns each field, by the path of the field. */
export function ownersByPath(managed: ManagedFields[] | undefined): Map<string, Owner[]> {
  const found = new Map<string, Owner[]>();
  for (const m of managed ?? []) {
    const owner: Owner = { manager: m.manager ?? '', operation: m.operation ?? '', subresource: m.subresource ?? '', time: m.time ?? '' };
    walk(m.fieldsV1 ?? {}, '', (path) => {
      const owners = found.get(path);
      if (owners) owners.push(owner);
      else found.set(path, [owner]);
    });
  }
  return found;
}

function walk(set: Record<string, unknown>, path: string, each: (path: string) => void): void {
  for (const [key, below] of Object.entries(set)) {
    if (key === '.') {
      each(path);
      continue;
    }
    const here = path + segment(key);
    const children = (below ?? {}) as Record<string, unknown>;
    if (Object.keys(children).length === 0) each(here);
    else walk(children, here, each);
  }
}

/** segment turns a path element of managedFields into text: f:spec is .spec, k:{"name":"web"} is [name=web]. */
function segment(element: string): string {
  const kind = element.slice(0, 2);
  const rest = element.slice(2);
  switch (kind) {
    case 'f:':
      return member(rest);
    case 'k:':
      try {
        const keys = JSON.parse(rest) as Record<string, unknown>;
        return `[${Object.entries(keys).map(([k, v]) => `${k}=${String(v)}`).join(',')}]`;
      } catch {
        return `[${rest}]`;
      }
    case 'v:':
      return `[=${rest}]`;
    default:
      return `[${rest}]`;
  }
}

const member = (name: string): string => (/^[A-Za-z0-9_-]+$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`);

/** pathsOfLines returns the path of the field of each line of YAML, as dump writes it, with the keys of list elements. */
export function pathsOfLines(object: unknown, yaml: string): string[] {
  const paths: string[] = [];
  const lines = yaml.split('\n');
  // Each member of the object is one line or a block that follows it; indentation tells where it ends.
  const visit = (value: object, path: string, from: number): number => {
    let at = from;
    for (const [key, below] of Object.entries(value) as [string, unknown][]) {
      if (at >= lines.length) break;
      if (Array.isArray(value)) at = block(below, path + elementKey(below, key), at);
      else if (below !== undefined) at = block(below, path + member(key), at, true);
    }
    return at;
  };
  const depth = (line: number): number => (lines[line] ?? '').search(/\S|$/);
  const block = (value: unknown, path: string, from: number, named = false): number => {
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
  if (object && typeof object === 'object') visit(object, '', 0);
  return paths;
}

/** elementKey names an element of a list by the member that identifies it in most lists of Kubernetes. */
function elementKey(value: unknown, index: string): string {
  if (isMembers(value)) {
    for (const key of ['name', 'containerPort', 'port', 'uid', 'type', 'ip', 'mountPath', 'key', 'topologyKey']) {
      if (['string', 'number'].includes(typeof value[key])) return `[${key}=${String(value[key])}]`;
    }
  } else if (typeof value === 'string') {
    return `[=${JSON.stringify(value)}]`;
  }
  return `[${index}]`;
}

/** ownersOf returns the owners of a field, or of the field above it that has any. Keys of list elements may differ in length. */
export function ownersOf(owners: Map<string, Owner[]>, path: string): Owner[] {
  for (let at = path; at; at = above(at)) {
    const found = owners.get(at) ?? owners.get(withoutSecondKeys(owners, at));
    if (found) return found;
  }
  return [];
}

/** above returns the path of the field that a field is in, '' at the top. */
export function above(path: string): string {
  const shorter = path.replace(/(\.[A-Za-z0-9_-]+|\[(?:"(?:[^"\\]|\\.)*"|[^\]]*)\])$/, '');
  return shorter === path ? '' : shorter;
}

/** withoutSecondKeys finds the path whose list keys have more members, such as [port=80,protocol=TCP]. */
function withoutSecondKeys(owners: Map<string, Owner[]>, path: string): string {
  if (!/\[[A-Za-z]+=/.test(path)) return path;
  const pattern = new RegExp(
    `^${path.split(/(\[[A-Za-z]+=[^\]]*\])/)
      .map((part) => {
        const key = /^\[([A-Za-z]+=[^\]]*)\]$/.exec(part);
        return key ? `\\[(?:[^\\]]*,)?${literal(key[1] ?? '')}(?:,[^\\]]*)?\\]` : literal(part);
      })
      .join('')}$`,
  );
  for (const candidate of owners.keys()) if (pattern.test(candidate)) return candidate;
  return path;
}

const literal = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
