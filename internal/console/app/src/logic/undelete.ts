// How objects come back, or get the content that they had: as the server plans it (docs/history.md).

import { FIELD_MANAGER, type KubeObject, type ManagedFields } from './kubernetes';
import type { Resource } from './resources';

export interface Manager extends ManagedFields {
  apiVersion?: string;
}

/** Step is an object that is created, or with a revert updated, unless skip says why not. */
export interface Step {
  group?: string;
  version: string;
  resource: string;
  kind: string;
  namespace?: string;
  name: string;
  /** The UID that the object had. Owner references and managedFields of later steps have it. */
  uid?: string;
  skip?: string;
  /** Only an error keeps the object from coming back: skip says which. */
  refused?: boolean;
  object?: KubeObject;
  notes?: string[];
  /** What is sent instead while the server answers that the object is invalid. */
  alternatives?: { object: KubeObject; note: string }[];
  managedFields?: Manager[];
  /** If it is set, more comes back with the object, and the same question with this asOf has it. */
  contentAsOf?: string;
}

/** Plan is an UndeletePlan. */
export interface Plan {
  /** Resources, or objects if they have a name, of which nothing comes back. */
  left: { group?: string; resource: string; namespace?: string; name?: string; reason: string; refused?: boolean }[];
  steps: Step[];
}

/** isContainer tells whether objects of a resource come back with what was in them: namespaces, and definitions with their objects. */
export const isContainer = (r: Resource): boolean =>
  (r.group === '' && r.kind === 'Namespace') || (r.group === 'apiextensions.k8s.io' && r.kind === 'CustomResourceDefinition');

/** resourceOf returns the resource of a step, as far as requests need it. */
export const resourceOf = (s: Step): Resource => ({
  group: s.group ?? '', version: s.version, kind: s.kind, plural: s.resource, namespaced: !!s.namespace,
  verbs: [], shortNames: [], subresources: new Map(), otherVersions: [],
});

/**
 * rewired returns an object with the UIDs of the owners that were created, and the owners that were not and are dropped. uids has the UID
 * of now of each object of the plan by that of then, '' if it was not created.
 */
export function rewired(o: KubeObject, uids: Map<string, string>): { object: KubeObject; dropped: string[] } {
  const { ownerReferences, ...metadata } = o.metadata;
  if (!ownerReferences) return { object: o, dropped: [] };
  const owners = ownerReferences.map((ref) => ({ ...ref, uid: uids.get(ref.uid) ?? ref.uid }));
  const kept = owners.filter((ref) => ref.uid);
  return {
    object: { ...o, metadata: kept.length ? { ...metadata, ownerReferences: kept } : metadata },
    dropped: owners.filter((ref) => !ref.uid).map((ref) => `${ref.kind} ${ref.name}`),
  };
}

/** renamed returns managedFields with the UIDs of the owners that were created. */
export const renamed = (entries: Manager[], uids: Map<string, string>): Manager[] =>
  JSON.parse(JSON.stringify(entries).replace(/[\w-]+/g, (word) => uids.get(word) || word)) as Manager[];

/** withOthers returns the managedFields of then with those entries of now that then does not have, without the one of this page. */
export function withOthers(then: Manager[], now: Manager[]): Manager[] {
  const key = (e: Manager): string => JSON.stringify([e.manager, e.apiVersion, e.subresource ?? '', e.operation]);
  const had = new Set(then.map(key));
  return [...then, ...now.filter((e) => !had.has(key(e)) && (e.manager !== FIELD_MANAGER || e.subresource))];
}
