// The past of an object, which Keelson keeps: its changes, and the object as it was.

import type { Change, ChangePage } from '../logic/changes';
import type { KubeObject } from '../logic/kubernetes';
import { query } from '../logic/links';
import { objectPath, type Resource } from '../logic/resources';
import { request } from './request';

/** lastChanges returns the last change of each field by its path, and under "" the creation of the object. */
export async function lastChanges(r: Resource, namespace: string, name: string, signal: AbortSignal): Promise<Map<string, Change>> {
  const found = new Map<string, Change>();
  let next = '';
  for (let pages = 0; pages < 10; pages++) {
    const page = await historyOf(r, namespace, name, next, false, signal);
    for (const c of page.items ?? []) {
      for (const path of c.changed ?? []) if (!found.has(path)) found.set(path, c);
      if (c.type === 'Created') {
        found.set('', c);
        return found; // what was before is another object of that name
      }
    }
    next = page.metadata?.continue ?? '';
    if (!next) break;
  }
  return found;
}

/** historyOf returns a page of changes, the newest first, with the objects as they were then if objects is set. */
export const historyOf = (
  r: Resource, namespace: string, name: string, next: string, objects: boolean, signal?: AbortSignal, limit = 100,
): Promise<ChangePage> =>
  request<ChangePage>(objectPath(r, namespace, name, 'history') + query({ limit, continue: next, objects }), { signal });

/** asOf returns an object as it was at a resource version or a time. */
export const asOf = (r: Resource, namespace: string, name: string, at: string, signal?: AbortSignal): Promise<KubeObject> =>
  request<KubeObject>(objectPath(r, namespace, name) + query({ asOf: at }), { signal });
