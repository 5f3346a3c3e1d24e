// The past of an object, which Keelson keeps: its changes, and the object as it was.

import type { Blame, ChangePage } from '../logic/changes';
import type { KubeObject } from '../logic/kubernetes';
import { query } from '../logic/links';
import { objectPath, type Resource } from '../logic/resources';
import { request } from './request';

/** blameOf returns who gave each field of an object its value; of one that is gone, the value that it had last. */
export const blameOf = (r: Resource, namespace: string, name: string, signal: AbortSignal): Promise<Blame> =>
  request<Blame>(objectPath(r, namespace, name, 'blame'), { signal });

/** historyOf returns a page of changes, the newest first, with the objects as they were then if objects is set. */
export const historyOf = (
  r: Resource, namespace: string, name: string, next: string, objects: boolean, signal?: AbortSignal, limit = 100,
): Promise<ChangePage> =>
  request<ChangePage>(objectPath(r, namespace, name, 'history') + query({ limit, continue: next, objects }), { signal });

/** asOf returns an object as it was at a resource version or a time. */
export const asOf = (r: Resource, namespace: string, name: string, at: string, signal?: AbortSignal): Promise<KubeObject> =>
  request<KubeObject>(objectPath(r, namespace, name) + query({ asOf: at }), { signal });
