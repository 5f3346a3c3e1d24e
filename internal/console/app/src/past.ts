// The past of objects, which Keelson keeps: changes, objects as they were, and how they come back. The rules for what comes
// back are those of `kubectl history` (docs/history.md).

import { query, request, type KubeObject, type OwnerReference, type Value } from './api';
import { apiVersionOf, listPath, objectPath, type Resource } from './discovery';

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
  userAgent?: string;
  auditID?: string;
  reason?: string;
  changed?: string[];
  moreChanged?: number;
  object?: KubeObject;
  // In a feed:
  group?: string;
  version?: string;
  resource?: string;
  namespace?: string;
  name?: string;
}

export interface ChangePage {
  metadata?: { continue?: string; resourceVersion?: string };
  items?: Change[];
  unreadable?: unknown;
}

export const who = (c: Change): string =>
  c.impersonator ? `${c.user ?? ''} (by ${c.impersonator})` : (c.user ?? '');

export const how = (c: Change): string => [c.verb, c.subresource].filter(Boolean).join(' ');

export const historyOf = (
  r: Resource, namespace: string, name: string, next: string, objects: boolean, signal?: AbortSignal,
): Promise<ChangePage> =>
  request<ChangePage>(
    objectPath(r, namespace, name, 'history') + query({ limit: 100, continue: next, objects }),
    { signal },
  );

export const asOf = (r: Resource, namespace: string, name: string, at: string, signal?: AbortSignal): Promise<KubeObject> =>
  request<KubeObject>(objectPath(r, namespace, name) + query({ asOf: at }), { signal });

const UNDELETED = 'history.keelson.dev/undeleted-uid';
const TOKEN_SECRET = 'kubernetes.io/service-account-token';

const copy = <T>(value: T): T => structuredClone(value);

const builtIn = (group: string): boolean => group === '' || !group.includes('.') || group.endsWith('.k8s.io');

function annotate(o: KubeObject, key: string, value: string): void {
  const annotations = { ...o.metadata.annotations };
  if (value) annotations[key] = value;
  else delete annotations[key];
  if (Object.keys(annotations).length) o.metadata.annotations = annotations;
  else delete o.metadata.annotations;
}

export interface Cleaned {
  object: KubeObject;
  notes: string[];
}

/** clean returns what is created to bring an object back: it without what the server or a controller sets. */
export function clean(r: Resource, was: KubeObject): Cleaned {
  const o = copy(was);
  const notes: string[] = [];
  const own = (o.metadata.finalizers ?? []).filter(
    (f) => f.includes('/') && !/(^|\.)(kubernetes|k8s)\.io$/.test(f.slice(0, f.indexOf('/'))),
  );
  if (own.length) notes.push(`without its finalizers ${own.join(', ')}`);
  for (const field of [
    'resourceVersion', 'uid', 'creationTimestamp', 'managedFields', 'selfLink', 'generation', 'deletionTimestamp',
    'deletionGracePeriodSeconds', 'finalizers',
  ]) {
    delete o.metadata[field];
  }
  delete o.status;
  o.apiVersion = apiVersionOf(r);
  o.kind = r.kind;
  annotate(o, UNDELETED, was.metadata.uid ?? '');
  if (!builtIn(r.group)) return { object: o, notes };
  const spec: Value = o.spec;
  switch (r.kind) {
    case 'Namespace':
      delete spec?.finalizers;
      break;
    case 'Pod':
      delete spec?.nodeName;
      delete spec?.ephemeralContainers;
      break;
    case 'Job':
      if (spec && !spec.manualSelector) {
        delete spec.selector;
        for (const label of ['controller-uid', 'batch.kubernetes.io/controller-uid', 'job-name', 'batch.kubernetes.io/job-name']) {
          delete spec.template?.metadata?.labels?.[label];
          delete o.metadata.labels?.[label];
        }
      }
      break;
    case 'Secret':
      if (o.type === TOKEN_SECRET) {
        delete o.data;
        annotate(o, 'kubernetes.io/service-account.uid', '');
        notes.push('without its token, which was for a ServiceAccount of another UID');
      }
      break;
    case 'PersistentVolumeClaim':
      annotate(o, 'pv.kubernetes.io/bind-completed', '');
      annotate(o, 'pv.kubernetes.io/bound-by-controller', '');
      annotate(o, 'volume.kubernetes.io/selected-node', '');
      break;
    case 'PersistentVolume':
      delete spec?.claimRef?.uid;
      delete spec?.claimRef?.resourceVersion;
      annotate(o, 'pv.kubernetes.io/bound-by-controller', '');
      break;
  }
  return { object: o, notes };
}

/** The fields of a spec that cannot change, or belong to a controller: a revert leaves them as they are. */
const FIELDS_OF_NOW: Record<string, string[][]> = {
  Namespace: [['finalizers']],
  Pod: [['nodeName'], ['ephemeralContainers']],
  Service: [['clusterIP'], ['clusterIPs']],
  PersistentVolumeClaim: [['volumeName']],
  PersistentVolume: [['claimRef']],
  Job: [['selector'], ['template', 'metadata', 'labels']],
};

/** revertedTo returns the object of now with the content, labels and annotations of then. */
export function revertedTo(r: Resource, now: KubeObject, then: KubeObject): KubeObject {
  const out: KubeObject = { ...copy(then), apiVersion: now.apiVersion, kind: now.kind, metadata: copy(now.metadata) };
  if ('status' in now) out.status = copy(now.status);
  else delete out.status;
  for (const field of ['labels', 'annotations'] as const) {
    if (then.metadata[field]) out.metadata[field] = { ...then.metadata[field] };
    else delete out.metadata[field];
  }
  annotate(out, UNDELETED, now.metadata.annotations?.[UNDELETED] ?? '');
  if (!builtIn(r.group)) return out;
  for (const path of FIELDS_OF_NOW[r.kind] ?? []) {
    const parent = (o: KubeObject): Value => path.slice(0, -1).reduce((v: Value, key) => v?.[key], o.spec);
    const last = path[path.length - 1];
    const value = parent(now)?.[last];
    const target = parent(out);
    if (!target) continue;
    if (value === undefined) delete target[last];
    else target[last] = copy(value);
  }
  return out;
}

/** rewire gives an object the owners of now, and returns those that are gone. */
async function rewire(o: KubeObject, uids: Map<string, string>, exists: (ref: OwnerReference) => Promise<boolean>): Promise<string[]> {
  const dropped: string[] = [];
  const kept: OwnerReference[] = [];
  for (const ref of o.metadata.ownerReferences ?? []) {
    const now = uids.get(ref.uid) ?? ((await exists(ref)) ? ref.uid : '');
    if (now) kept.push({ ...ref, uid: now });
    else dropped.push(`${ref.kind} ${ref.name}`);
  }
  if (kept.length) o.metadata.ownerReferences = kept;
  else delete o.metadata.ownerReferences;
  return dropped;
}

/** createForms returns what is tried to create: a Service keeps its addresses and node ports if they are free. */
function createForms(r: Resource, o: KubeObject): { object: KubeObject; note: string }[] {
  const forms = [{ object: o, note: '' }];
  if (r.group || r.kind !== 'Service' || !o.spec?.clusterIP || o.spec.clusterIP === 'None') return forms;
  const other = copy(o);
  delete other.spec.clusterIP;
  delete other.spec.clusterIPs;
  forms.push({ object: other, note: 'with another cluster IP' });
  const free = copy(other);
  delete free.spec.healthCheckNodePort;
  for (const port of free.spec.ports ?? []) delete port.nodePort;
  forms.push({ object: free, note: 'with another cluster IP and other node ports' });
  return forms;
}

export interface Outcome {
  ok: boolean;
  text: string;
  object?: KubeObject;
}

/** undelete creates an object as it was. uids has the new UIDs of owners that came back before. */
export async function undelete(
  r: Resource, was: KubeObject, dryRun: boolean, uids: Map<string, string>,
  exists: (ref: OwnerReference) => Promise<boolean>,
): Promise<Outcome> {
  const { object, notes } = clean(r, was);
  const dropped = await rewire(object, uids, exists);
  if (dropped.length) notes.push(`without its owners that are gone: ${dropped.join(', ')}`);
  let refusal: unknown;
  for (const form of createForms(r, object)) {
    try {
      const created = await request<KubeObject>(
        listPath(r, was.metadata.namespace) + query({ dryRun: dryRun ? 'All' : '', fieldManager: 'keelson-console' }),
        { method: 'POST', body: JSON.stringify(form.object) },
      );
      if (!dryRun && was.metadata.uid && created.metadata.uid) uids.set(was.metadata.uid, created.metadata.uid);
      const all = [...(form.note ? [form.note] : []), ...notes];
      return { ok: true, text: all.join('; '), object: created };
    } catch (e) {
      refusal ??= e;
    }
  }
  return { ok: false, text: refusal instanceof Error ? refusal.message : String(refusal) };
}

/** The order in which objects of a namespace come back. */
const ORDER = [
  'Namespace', 'ServiceAccount', 'Role', 'RoleBinding', 'ConfigMap', 'Secret', 'PersistentVolumeClaim', '*', 'Service', 'Deployment',
  'StatefulSet', 'DaemonSet', 'ReplicaSet', 'CronJob', 'Job', 'Pod',
];

export const orderOf = (kind: string): number => {
  const at = ORDER.indexOf(kind);
  return at < 0 ? ORDER.indexOf('*') : at;
};
