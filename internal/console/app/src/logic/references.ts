// The objects that an object names.

import { textOf } from './format';
import type { KubeObject } from './kubernetes';
import { objectLink } from './links';
import { findByKey, findByKind, type Discovery, type Resource } from './resources';
import { at, isMembers, textAt } from './values';

export interface Reference {
  text: string;
  where: string;
  href: string;
}

/** Members of a spec that name an object of a kind: [member, kind, where the name is]. */
const NAMED: [RegExp, string][] = [
  [/^(configMapRef|configMapKeyRef|configMap)$/, 'configmaps'],
  [/^(secretRef|secretKeyRef|secret|certificateSecretRef|secretStoreRef)$/, 'secrets'],
  [/^imagePullSecrets$/, 'secrets'],
  [/^persistentVolumeClaim$/, 'persistentvolumeclaims'],
];

/** Members of a spec whose text is the name of an object. */
const TEXTS: Record<string, string> = {
  serviceAccountName: 'serviceaccounts',
  secretName: 'secrets',
  claimName: 'persistentvolumeclaims',
  volumeName: 'persistentvolumes',
  storageClassName: 'storageclasses.storage.k8s.io',
  priorityClassName: 'priorityclasses.scheduling.k8s.io',
  runtimeClassName: 'runtimeclasses.node.k8s.io',
  ingressClassName: 'ingressclasses.networking.k8s.io',
  nodeName: 'nodes',
  serviceName: 'services',
};

const MOST = 100;

/** referencesOf finds the objects that a spec names, with links. It reads nothing from the server. */
export function referencesOf(object: KubeObject, d: Discovery): Reference[] {
  const found = new Map<string, Reference>();
  const add = (r: Resource | undefined, namespace: string | undefined, name: unknown, where: string): void => {
    if (!r || typeof name !== 'string' || !name || found.size >= MOST) return;
    const href = objectLink(r, r.namespaced ? namespace : undefined, name);
    if (!found.has(href)) found.set(href, { text: `${r.kind} ${name}`, where, href });
  };
  const visit = (value: unknown, path: string, depth: number): void => {
    if (depth > 14) return;
    if (Array.isArray(value)) {
      for (const [i, v] of (value as unknown[]).slice(0, 200).entries()) visit(v, `${path}[${i}]`, depth + 1);
      return;
    }
    if (!isMembers(value)) return;
    const namespace = object.metadata.namespace;
    if (typeof value.kind === 'string' && typeof value.name === 'string') {
      const version = value.apiVersion ?? (value.apiGroup ? `${textAt(value, 'apiGroup')}/` : undefined);
      const group = textOf(version).replace(/\/.*/, '').replace(/^v\d.*$/, '');
      const r = d.resources.find((one) => one.kind === value.kind && (version === undefined || one.group === group));
      add(r, textAt(value, 'namespace') || namespace, value.name, path);
    }
    for (const [key, v] of Object.entries(value)) {
      const here = `${path}.${key}`;
      const text = TEXTS[key];
      if (text) add(findByKey(d, text), namespace, v, here);
      for (const [pattern, kind] of NAMED) {
        if (!pattern.test(key)) continue;
        for (const one of Array.isArray(v) ? (v as unknown[]) : [v]) add(findByKey(d, kind), namespace, at(one, 'name') ?? at(one, 'secretName'), here);
      }
      visit(v, here, depth + 1);
    }
  };
  visit({ spec: object.spec, roleRef: object.roleRef, subjects: object.subjects, webhooks: object.webhooks }, '', 0);
  for (const o of object.metadata.ownerReferences ?? []) {
    add(findByKind(d, o.apiVersion, o.kind), object.metadata.namespace, o.name, '.metadata.ownerReferences');
  }
  return [...found.values()];
}
