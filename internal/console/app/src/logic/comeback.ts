// How an object comes back, or gets the content that it had. The rules are those of `kubectl history` (docs/history.md), as in
// cmd/keelson/kubectlhistory.

import { FIELD_MANAGER, type KubeObject, type ManagedFields } from './kubernetes';
import { builtIn, TOKEN_SECRET } from './plan';
import { apiVersionOf, type Resource } from './resources';
import { at, isMembers, listAt, put, remove, textAt } from './values';
import { checkNumbers } from './yaml';

/** UNDELETED is the annotation of an object that came back, with the UID that it had before. */
export const UNDELETED = 'history.keelson.dev/undeleted-uid';

export const annotationUID = (o: KubeObject): string => o.metadata.annotations?.[UNDELETED] ?? '';

const copy = <T>(value: T): T => structuredClone(value);

function annotate(o: KubeObject, key: string, value: string): void {
  const annotations = { ...o.metadata.annotations };
  if (value) annotations[key] = value;
  else delete annotations[key];
  if (Object.keys(annotations).length) o.metadata.annotations = annotations;
  else delete o.metadata.annotations;
}

/** ofKubernetes tells whether a finalizer is one of Kubernetes itself, which the part that needs it adds again. */
const ofKubernetes = (finalizer: string): boolean => {
  const [domain = '', ...rest] = finalizer.split('/');
  return !rest.length || domain === 'kubernetes.io' || domain.endsWith('.kubernetes.io') || domain.endsWith('.k8s.io');
};

/** clean returns what is created to bring an object back: it without what the server or a controller sets. */
export function clean(r: Resource, was: KubeObject): { object: KubeObject; notes: string[] } {
  const o = copy(was);
  const notes: string[] = [];
  const own = (o.metadata.finalizers ?? []).filter((f) => !ofKubernetes(f));
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
  switch (r.kind) {
    case 'Namespace':
      remove(o, 'spec', 'finalizers');
      break;
    case 'Pod':
      remove(o, 'spec', 'nodeName');
      remove(o, 'spec', 'ephemeralContainers');
      break;
    case 'Job':
      if (!at(o, 'spec', 'manualSelector')) {
        remove(o, 'spec', 'selector');
        for (const label of ['controller-uid', 'batch.kubernetes.io/controller-uid', 'job-name', 'batch.kubernetes.io/job-name']) {
          remove(o, 'spec', 'template', 'metadata', 'labels', label);
          remove(o, 'metadata', 'labels', label);
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
      remove(o, 'spec', 'claimRef', 'uid');
      remove(o, 'spec', 'claimRef', 'resourceVersion');
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
  checkNumbers([now, then]);
  const { apiVersion, kind, metadata, status } = copy(now);
  const out: KubeObject = { ...copy(then), metadata, ...(apiVersion ? { apiVersion } : {}), ...(kind ? { kind } : {}), status };
  if (!('status' in now)) delete out.status;
  for (const field of ['labels', 'annotations'] as const) {
    if (then.metadata[field]) out.metadata[field] = { ...then.metadata[field] };
    else delete out.metadata[field];
  }
  if (annotationUID(now)) annotate(out, UNDELETED, annotationUID(now));
  if (!builtIn(r.group)) return out;
  for (const path of FIELDS_OF_NOW[r.kind] ?? []) {
    const value = at(now.spec, ...path);
    if (value === undefined) remove(out.spec, ...path);
    else put(out, ['spec', ...path], copy(value));
  }
  return out;
}

/**
 * keepVolume decides about the volume of a claim: it stays if the volume exists and is for no other claim. volume is undefined if it
 * does not exist or cannot be read. It returns a note, or ''.
 */
export function keepVolume(claim: KubeObject, volume: KubeObject | undefined): string {
  const name = textAt(claim, 'spec', 'volumeName');
  if (!name) return '';
  const ref = at(volume, 'spec', 'claimRef');
  if (volume && !ref) return '';
  if (isMembers(ref) && ref.namespace === claim.metadata.namespace && ref.name === claim.metadata.name) {
    return `the volume ${name} is bound again after its spec.claimRef.uid is removed`;
  }
  remove(claim, 'spec', 'volumeName');
  return `without the volume ${name}, which is gone or used by another claim: the data does not come back`;
}

/** rewire gives an object the owners of now, by their UIDs of then, and returns those that are gone. */
export function rewire(o: KubeObject, uids: Map<string, string>): string[] {
  const owners = (o.metadata.ownerReferences ?? []).map((ref) => ({ ...ref, uid: uids.get(ref.uid) ?? '' }));
  const kept = owners.filter((ref) => ref.uid);
  if (kept.length) o.metadata.ownerReferences = kept;
  else delete o.metadata.ownerReferences;
  return owners.filter((ref) => !ref.uid).map((ref) => `${ref.kind} ${ref.name}`);
}

/** createForms returns what is tried to create, the best first: a Service keeps its addresses and node ports if they are free. */
export function createForms(r: Resource, o: KubeObject): { object: KubeObject; note: string }[] {
  const forms = [{ object: o, note: '' }];
  if (r.group || r.kind !== 'Service' || ['', 'None'].includes(textAt(o, 'spec', 'clusterIP'))) return forms;
  const other = copy(o);
  for (const field of ['clusterIP', 'clusterIPs']) remove(other, 'spec', field);
  forms.push({ object: other, note: 'with another cluster IP' });
  const ported = listAt(o, 'spec', 'ports').some((port) => at(port, 'nodePort') !== undefined);
  if (at(o, 'spec', 'healthCheckNodePort') === undefined && !ported) return forms;
  // The address is tried again: perhaps only a port is taken.
  for (const form of [...forms]) {
    const free = copy(form.object);
    remove(free, 'spec', 'healthCheckNodePort');
    for (const port of listAt(free, 'spec', 'ports')) remove(port, 'nodePort');
    forms.push({ object: free, note: `${form.note ? `${form.note} and` : 'with'} other node ports` });
  }
  return forms;
}

export const EXISTS = 'an object of this name exists';

/** isContainer tells whether objects of a resource come back with what was in them: namespaces, and definitions with their objects. */
export const isContainer = (r: Resource): boolean => isNamespace(r) || isDefinition(r);

export const isNamespace = (r: Resource): boolean => r.group === '' && r.kind === 'Namespace';
export const isDefinition = (r: Resource): boolean => r.group === 'apiextensions.k8s.io' && r.kind === 'CustomResourceDefinition';

interface Manager extends ManagedFields {
  apiVersion?: string;
}

const OWN_FIELDS = { 'f:metadata': { 'f:annotations': { [`f:${UNDELETED}`]: {} } } };

/**
 * managersThen returns the managedFields of an object of now that has the content of then: its fields belong to their managers of then,
 * those of its subresources to those of now. Who has changed it since stays a manager too, but for this page.
 */
export function managersThen(then: KubeObject, now: KubeObject, uids: Map<string, string>): Manager[] {
  const renamed = new Map((then.metadata.ownerReferences ?? []).map((ref) => [ref.uid, uids.get(ref.uid) || ref.uid]));
  const text = JSON.stringify(then.metadata.managedFields ?? []).replace(/[\w-]+/g, (word) => renamed.get(word) ?? word);
  const before = (JSON.parse(text) as Manager[]).filter((e) => !e.subresource);
  const current: Manager[] = now.metadata.managedFields ?? [];
  if (!before.length) return current;
  const key = (e: Manager): string => JSON.stringify([e.manager, e.apiVersion, e.subresource ?? '', e.operation]);
  const had = new Set(before.map(key));
  const since = current.filter((e) => !had.has(key(e)));
  const own = (e: Manager): boolean => e.manager === FIELD_MANAGER && !e.subresource;
  return [...before, ...since.filter((e) => !own(e) || annotationUID(now)).map((e) => (own(e) ? { ...e, fieldsV1: OWN_FIELDS } : e))];
}
