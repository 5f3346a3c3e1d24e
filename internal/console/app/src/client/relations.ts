// The owners of an object, and what belongs to it.

import { APIError, messageOf, type KubeObject } from '../logic/kubernetes';
import { objectLink, query } from '../logic/links';
import { findByKind, hasVerb, keyOf, listPath, objectPath, type Discovery, type Resource } from '../logic/resources';
import { METADATA_TYPE, request, requestList } from './request';

/** GraphNode is an object in the graph of owners. href is empty for the object itself, and where no resource is known. */
export interface GraphNode {
  label: string;
  kind: string;
  href: string;
  uid: string;
  /** UIDs of the owners to which a line is drawn. */
  owners: string[];
}

/** Levels of owners, and of dependents, that are looked for. */
const DEPTH = 6;

/** Resources whose objects are not looked at: they are many, and seldom of interest as dependents. */
const SKIPPED = new Set(['endpoints', 'events', 'events.events.k8s.io', 'leases.coordination.k8s.io', 'componentstatuses']);
export const SKIPPED_TEXT = 'Not looked at';

/** chainOfOwners returns the owners level by level, the furthest first. Of a level, the first owner that can be read is followed. */
export async function chainOfOwners(d: Discovery, object: KubeObject, signal: AbortSignal): Promise<GraphNode[][]> {
  const levels: GraphNode[][] = [];
  let at: KubeObject | undefined = object;
  for (let depth = 0; depth < DEPTH && at; depth++) {
    const owners = at.metadata.ownerReferences ?? [];
    if (!owners.length) break;
    let next: KubeObject | undefined;
    const level: GraphNode[] = [];
    for (const o of owners.slice(0, 20)) {
      const r = findByKind(d, o.apiVersion, o.kind);
      const namespace = r?.namespaced ? object.metadata.namespace : undefined;
      const node: GraphNode = { label: o.name, kind: o.kind, href: r ? objectLink(r, namespace, o.name) : '', uid: o.uid, owners: [] };
      level.push(node);
      if (r && !next) {
        next = await request<KubeObject>(objectPath(r, namespace, o.name), { signal, quiet: true }).catch(() => undefined);
        node.owners = next?.metadata.ownerReferences?.map((above) => above.uid) ?? [];
      }
    }
    levels.unshift(level);
    at = next;
  }
  return levels;
}

/** MOST_LOOKED_AT is how many objects of a resource are looked at. An API server has no index of owners that a client could ask. */
const MOST_LOOKED_AT = 50_000;
const PAGE = 1000;

/** The resources that were not looked at, or not at all of their objects, by the reason. */
type Left = Record<string, string[]>;

/** dependentsOf lists the metadata of what may belong to an object, and returns what does, level by level. It is bounded. */
export async function dependentsOf(
  d: Discovery, resource: Resource, object: KubeObject, signal: AbortSignal,
): Promise<{ levels: GraphNode[][]; left: Left }> {
  const byOwner = new Map<string, GraphNode[]>();
  const left: Left = {};
  const leave = (why: string, what: string): void => void (left[why] ??= []).push(what);
  const queue = d.resources.filter((r) => {
    if (!hasVerb(r, 'list') || (resource.namespaced && !r.namespaced)) return false;
    if (SKIPPED.has(keyOf(r))) leave(SKIPPED_TEXT, keyOf(r));
    return !SKIPPED.has(keyOf(r));
  });
  const work = async (): Promise<void> => {
    for (let r = queue.shift(); r; r = queue.shift()) {
      try {
        let seen = 0;
        let next = '';
        do {
          const path = listPath(r, resource.namespaced ? object.metadata.namespace : '') + query({ limit: PAGE, continue: next });
          const list = await requestList<KubeObject>(path, { signal, accept: METADATA_TYPE, quiet: true });
          for (const { metadata: m = {} } of list.items as Partial<KubeObject>[]) {
            for (const owner of m.ownerReferences ?? []) {
              const siblings = byOwner.get(owner.uid) ?? [];
              byOwner.set(owner.uid, siblings);
              siblings.push({
                label: m.name ?? '', kind: r.kind, href: objectLink(r, m.namespace, m.name ?? ''),
                uid: m.uid ?? '', owners: [owner.uid],
              });
            }
          }
          seen += list.items.length;
          next = list.metadata.continue ?? '';
        } while (next && seen < MOST_LOOKED_AT);
        if (next) leave(`Only the first ${MOST_LOOKED_AT} were looked at`, r.plural);
      } catch (e) {
        if (signal.aborted) return;
        if (e instanceof APIError && e.code === 403) leave('Not readable for you', r.plural);
        else leave('Not read', `${r.plural} (${messageOf(e)})`);
      }
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  const levels: GraphNode[][] = [];
  const seen = new Set([object.metadata.uid]);
  for (let above = [object.metadata.uid ?? '']; above.length && levels.length < DEPTH; ) {
    const level = above
      .flatMap((uid) => byOwner.get(uid)?.sort((a, b) => a.kind.localeCompare(b.kind) || a.label.localeCompare(b.label)) ?? [])
      .filter((n) => !seen.has(n.uid) && seen.add(n.uid));
    if (level.length) levels.push(level);
    above = level.map((n) => n.uid);
  }
  return { levels, left };
}
