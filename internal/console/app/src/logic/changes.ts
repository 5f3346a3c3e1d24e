// Changes of objects, which Keelson keeps.

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

/** Blame is an ObjectBlame: who gave each field of an object its value. */
export interface Blame {
  deletion?: Change;
  changes: Change[];
  fields: { path: string; resourceVersion?: string }[];
  moreFields?: number;
  notExamined?: string;
}

/** changesOf returns the change that gave each field its value, by path. Fields that are older than the history are left out. */
export function changesOf({ changes, fields }: Blame): Map<string, Change> {
  const byVersion = new Map(changes.map((c) => [c.resourceVersion, c]));
  return new Map(fields.flatMap(({ path, resourceVersion }): [string, Change][] => {
    const c = byVersion.get(resourceVersion ?? '');
    return c ? [[path, c]] : [];
  }));
}
