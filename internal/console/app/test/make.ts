// What tests make objects and resources of.

import type { KubeObject, Metadata } from '../src/logic/kubernetes';
import type { Discovery, Resource } from '../src/logic/resources';

/** resource makes a resource from how it is written in kubectl: deployments.apps, and its kind. */
export function resource(key: string, kind: string, over: Partial<Resource> = {}): Resource {
  const [plural = '', ...group] = key.split('.');
  return {
    group: group.join('.'), version: 'v1', kind, plural, namespaced: true,
    verbs: ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete'],
    shortNames: [], subresources: new Map(), otherVersions: [], ...over,
  };
}

export const PODS = resource('pods', 'Pod');
export const SECRETS = resource('secrets', 'Secret');
export const SERVICES = resource('services', 'Service');
export const NAMESPACES = resource('namespaces', 'Namespace', { namespaced: false });
export const DEPLOYMENTS = resource('deployments.apps', 'Deployment');
export const REPLICASETS = resource('replicasets.apps', 'ReplicaSet');
export const WIDGETS = resource('widgets.example.com', 'Widget');

export const discovery: Discovery = {
  resources: [
    PODS, SECRETS, SERVICES, NAMESPACES, DEPLOYMENTS, REPLICASETS, WIDGETS, resource('configmaps', 'ConfigMap'),
    resource('serviceaccounts', 'ServiceAccount'), resource('nodes', 'Node', { namespaced: false }),
    resource('persistentvolumeclaims', 'PersistentVolumeClaim'),
  ],
  stale: [],
};

export function object(r: Resource, name: string, metadata: Metadata = {}, rest: Record<string, unknown> = {}): KubeObject {
  const apiVersion = r.group ? `${r.group}/${r.version}` : r.version;
  return { apiVersion, kind: r.kind, metadata: { name, uid: `uid-${name}`, ...(r.namespaced ? { namespace: 'default' } : {}), ...metadata }, ...rest };
}

export const candidate = (r: Resource, name: string, metadata: Metadata = {}, rest: Record<string, unknown> = {}): { resource: Resource; object: KubeObject } => ({
  resource: r, object: object(r, name, metadata, rest),
});

/** owner is an owner reference to an object, as its controller unless controller is false. */
export const owner = ({ resource: r, object: o }: ReturnType<typeof candidate>, controller = true): NonNullable<Metadata['ownerReferences']>[0] => ({
  apiVersion: o.apiVersion ?? '', kind: r.kind, name: o.metadata.name ?? '', uid: o.metadata.uid ?? '', controller,
});

/** random returns numbers from 0 to below n that are the same in each run (mulberry32). */
export function random(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}
