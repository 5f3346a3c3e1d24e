// Which objects come back together, and in which order: as cmd/keelson/kubectlhistory/plan.go.

import type { KubeObject, OwnerReference } from './kubernetes';
import { keyOf, type Resource } from './resources';
import { conditionsOf } from './status';
import { textAt } from './values';

/** Candidate is an object as it was. */
export interface Candidate {
  resource: Resource;
  object: KubeObject;
}

/** Step is a candidate that is created, unless skip says why not. */
export interface Step extends Candidate {
  skip: string;
}

export const TOKEN_SECRET = 'kubernetes.io/service-account-token';

const GROUPS = new Set([
  'admissionregistration.k8s.io', 'apiextensions.k8s.io', 'apiregistration.k8s.io', 'authentication.k8s.io', 'authorization.k8s.io',
  'certificates.k8s.io', 'coordination.k8s.io', 'discovery.k8s.io', 'events.k8s.io', 'flowcontrol.apiserver.k8s.io',
  'internal.apiserver.k8s.io', 'lifecycle.k8s.io', 'networking.k8s.io', 'node.k8s.io', 'rbac.authorization.k8s.io', 'resource.k8s.io', 'scheduling.k8s.io',
  'storage.k8s.io', 'storagemigration.k8s.io',
]);

/** builtIn tells whether an API group is one of Kubernetes itself. */
export const builtIn = (group: string): boolean => GROUPS.has(group) || !group.includes('.');

/** The kinds of Kubernetes in the order in which they are created. Custom resources are the empty tier, other kinds come last. */
const TIERS = [
  ['Namespace'], ['ServiceAccount'], ['Role', 'ClusterRole'], ['RoleBinding', 'ClusterRoleBinding'], ['ConfigMap', 'Secret'],
  ['PersistentVolume'], ['PersistentVolumeClaim'], [], ['Service'],
  ['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet', 'ReplicationController', 'Job', 'CronJob', 'Pod'],
];

function tier(r: Resource): number {
  const at = builtIn(r.group) ? TIERS.findIndex((kinds) => kinds.includes(r.kind)) : TIERS.findIndex((kinds) => !kinds.length);
  return at < 0 ? TIERS.length : at;
}

/** What the controller of an owner makes again when it is missing. */
const MADE = new Map([
  ['Deployment', ['ReplicaSet']],
  ['ReplicaSet', ['Pod']],
  ['ReplicationController', ['Pod']],
  ['Job', ['Pod']],
  ['StatefulSet', ['Pod', 'ControllerRevision']],
  ['DaemonSet', ['Pod', 'ControllerRevision']],
  ['CronJob', ['Job']],
  ['Service', ['EndpointSlice', 'Endpoints']],
  ['Endpoints', ['EndpointSlice']],
  ['Pod', ['PersistentVolumeClaim', 'ResourceClaim']],
]);

/** maker returns the controlling owner of an object if that makes it again. */
function maker({ resource, object }: Candidate): OwnerReference | undefined {
  const owner = object.metadata.ownerReferences?.find((ref) => ref.controller);
  if (!owner) return undefined;
  const group = owner.apiVersion.includes('/') ? owner.apiVersion.slice(0, owner.apiVersion.indexOf('/')) : '';
  return builtIn(group) && builtIn(resource.group) && MADE.get(owner.kind)?.includes(resource.kind) ? owner : undefined;
}

/** neverUndeleted returns why no object of a resource comes back with others, '' if they do. */
export function neverUndeleted(r: Resource): string {
  if (builtIn(r.group) && r.kind === 'Event') return 'Events report what happened, they do not come back';
  if (builtIn(r.group) && r.kind === 'Lease') return 'who needs a Lease takes a new one';
  return '';
}

function finished(kind: string, o: KubeObject): boolean {
  if (kind === 'Pod') return ['Succeeded', 'Failed'].includes(textAt(o, 'status', 'phase'));
  return kind === 'Job' && conditionsOf(o).some((c) => ['Complete', 'Failed'].includes(c.type ?? '') && c.status === 'True');
}

/** leftOut returns why an object does not come back with others, '' if it does. */
function leftOut({ resource: r, object: o }: Candidate): string {
  const { name, labels, annotations, deletionTimestamp } = o.metadata;
  const never = neverUndeleted(r);
  if (never) return never;
  if (deletionTimestamp && !(builtIn(r.group) && r.kind === 'Namespace')) return 'it was being deleted';
  if (!builtIn(r.group)) return '';
  if ((r.kind === 'ConfigMap' && name === 'kube-root-ca.crt') || (r.kind === 'ServiceAccount' && name === 'default')) {
    return 'a controller makes it in each namespace';
  }
  if (
    (r.kind === 'EndpointSlice' && labels?.['endpointslice.kubernetes.io/managed-by']?.endsWith('.k8s.io')) ||
    (r.kind === 'Endpoints' && annotations?.['endpoints.kubernetes.io/last-change-trigger-time']) ||
    (r.kind === 'Endpoints' && labels?.['endpoints.kubernetes.io/managed-by'])
  ) {
    return 'a controller makes it for a Service';
  }
  if (r.kind === 'Pod' && annotations?.['kubernetes.io/config.mirror']) return 'the kubelet makes it from a file';
  if (r.kind === 'Secret' && o.type === TOKEN_SECRET) return 'its token was for a ServiceAccount that had another UID; make a new one';
  return finished(r.kind, o) ? 'it had finished, and would run again' : '';
}

const order = (c: Candidate): string[] => [keyOf(c.resource), c.object.metadata.namespace ?? '', c.object.metadata.name ?? ''];

function compare(a: Candidate, b: Candidate): number {
  const y = order(b);
  const differ = order(a).map((text, i) => (text === y[i] ? 0 : text < (y[i] ?? '') ? -1 : 1));
  return tier(a.resource) - tier(b.resource) || (differ.find((sign) => sign !== 0) ?? 0);
}

/**
 * planned returns what is done with objects, in the order in which they are created: by tier, and owners before what they own. live
 * has the UIDs of now of owners that exist, by the UID of then. named says that the user named the objects one by one: then only those
 * are skipped that their owner makes again.
 */
export function planned(objects: Candidate[], live: Map<string, string>, named: boolean): Step[] {
  const sorted = [...objects].sort(compare);
  const byUID = new Map(sorted.map((c) => [c.object.metadata.uid ?? '', c]));
  const steps = new Map<string, Step | null>(); // null while the owners of the object are visited
  const visit = (c: Candidate): void => {
    const uid = c.object.metadata.uid ?? '';
    if (steps.has(uid)) return; // also in a circle of owners
    steps.set(uid, null);
    for (const ref of c.object.metadata.ownerReferences ?? []) {
      const owner = byUID.get(ref.uid);
      if (owner) visit(owner);
    }
    const owner = maker(c);
    const inSet = owner && byUID.get(owner.uid);
    const comesBack = owner && inSet && (!steps.get(owner.uid)?.skip || maker(inSet));
    const skip = owner && (comesBack || live.get(owner.uid)) ? `the ${owner.kind} ${owner.name} makes it again` : named ? '' : leftOut(c);
    steps.delete(uid); // the order is that of the ends of the visits
    steps.set(uid, { ...c, skip });
  };
  sorted.forEach(visit);
  return [...steps.values()].filter((s) => s !== null);
}
