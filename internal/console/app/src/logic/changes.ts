// Changes of objects, which Keelson keeps.

import { above } from './fields';
import type { KubeObject } from './kubernetes';

/** Change is one of history.keelson.dev/v1alpha1 (docs/history.md). */
export interface Change {
  type: 'Created' | 'Updated' | 'Deleted' | 'Expired';
  resourceVersion: string;
  time?: string;
  uid?: string;
  user?: string;
  impersonator?: string;
  verb?: string;
  subresource?: string;
  fieldManager?: string;
  reason?: string;
  changed?: string[];
  moreChanged?: number;
  object?: KubeObject;
  // In a feed:
  group?: string;
  resource?: string;
  namespace?: string;
  name?: string;
}

export interface ChangePage {
  metadata?: { continue?: string; resourceVersion?: string };
  items?: Change[];
}

export const who = (c: Change): string => c.impersonator ? `${c.user ?? ''} (by ${c.impersonator})` : (c.user ?? '');

export const how = (c: Change): string => [c.verb, c.subresource].filter(Boolean).join(' ');

const keyOf = (c: Change): string => JSON.stringify([c.group ?? '', c.resource, c.namespace ?? '', c.name]);

/** deletedObjects returns a deletion of each object that was deleted. */
export const deletedObjects = (changes: Change[]): Change[] => [
  ...new Map(changes.filter((c) => c.type === 'Deleted').map((c) => [keyOf(c), c])).values(),
];

/** changeOf returns the last change of a field, of the field that it is in, or the creation. */
export function changeOf(found: Map<string, Change>, path: string): Change | undefined {
  for (let at = path; at; at = above(at)) {
    const c = found.get(at);
    if (c) return c;
  }
  return found.get('');
}
