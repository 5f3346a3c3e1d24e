// Objects as YAML: what is shown, and what is sent.

import { dump, loadAll } from 'js-yaml';
import type { KubeObject, Value } from './api';

/** A document longer than this is not shown as YAML with its decorations. */
export const MAX_YAML = 3 << 20;

export function toYAML(object: Value): string {
  return dump(object, { lineWidth: -1, noRefs: true });
}

/** withoutManagedFields returns an object without the part that nobody reads. */
export function withoutManagedFields<T extends { metadata?: { managedFields?: unknown } }>(object: T): T {
  if (!object.metadata?.managedFields) return object;
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/** documents parses the YAML or JSON of several documents. Lists are taken apart. */
export function documents(text: string): KubeObject[] {
  const found: KubeObject[] = [];
  for (const one of loadAll(text) as Value[]) {
    if (one === null || one === undefined) continue;
    if (typeof one !== 'object' || Array.isArray(one)) throw new Error('a document is not an object');
    if (typeof one.kind === 'string' && one.kind.endsWith('List') && Array.isArray(one.items)) found.push(...one.items);
    else found.push(one as KubeObject);
  }
  return found.map((o) => ({ ...o, metadata: o.metadata ?? {} }));
}

/** oneDocument parses the YAML of one object. */
export function oneDocument(text: string): KubeObject {
  const all = documents(text);
  if (all.length !== 1) throw new Error(`there have to be one document, not ${all.length}`);
  return all[0];
}
