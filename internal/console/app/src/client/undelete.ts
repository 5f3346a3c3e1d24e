// How objects come back: as cmd/keelson/kubectlhistory/undelete.go and managers.go.

import { annotationUID, clean, createForms, EXISTS, isNamespace, keepVolume, managersThen, rewire } from '../logic/comeback';
import { APIError, FIELD_MANAGER, messageOf, type APIService, type KubeObject } from '../logic/kubernetes';
import { query } from '../logic/links';
import { neverUndeleted, planned, type Candidate } from '../logic/plan';
import { apiVersionOf, findByKind, listPath, objectPath, type Discovery, type Resource } from '../logic/resources';
import { textAt } from '../logic/values';
import { checkNumbers } from '../logic/yaml';
import { historyOf } from './past';
import { request, requestList, sleep } from './request';
import { discover } from './server';

const is = (e: unknown, reason: string, code: number): boolean =>
  e instanceof APIError && (e.status.reason ? e.status.reason === reason : e.code === code);

/** write creates or updates an object. */
export function write(r: Resource, o: KubeObject, method: 'POST' | 'PUT', dryRun: boolean): Promise<KubeObject> {
  const { namespace, name } = o.metadata;
  return request<KubeObject>(
    (method === 'POST' ? listPath(r, namespace) : objectPath(r, namespace, name ?? '')) +
      query({ dryRun: dryRun ? 'All' : '', fieldManager: FIELD_MANAGER }),
    { method, body: JSON.stringify(o) },
  );
}

/** beforeDeletion returns the version just before the last deletion of an object was asked for, '' if the object exists. */
export async function beforeDeletion(r: Resource, namespace: string, name: string, signal?: AbortSignal): Promise<string> {
  let uid = '';
  let revision = '';
  search: for (let next = ''; ; ) {
    const page = await historyOf(r, namespace, name, next, true, signal, 50);
    for (const c of page.items ?? []) {
      if (!revision) {
        if (c.type !== 'Deleted' && c.type !== 'Expired') return '';
        uid = c.uid ?? '';
        if (!uid) throw new Error('what it was before its deletion is not kept any more');
      } else if (c.uid !== uid || !c.object?.metadata.deletionTimestamp) {
        break search;
      }
      revision = c.resourceVersion;
    }
    next = page.metadata?.continue ?? '';
    if (!next) break;
  }
  if (!revision) throw new Error('the server has no history of it');
  return String(BigInt(revision) - 1n);
}

/** liveOwners returns the UIDs of now of the owners that exist, by those in owner references. An owner that came back has another. */
async function liveOwners(d: Discovery, objects: KubeObject[]): Promise<Map<string, string>> {
  const live = new Map<string, string>();
  const asked = new Set<string>();
  for (const { metadata } of objects) {
    for (const ref of metadata.ownerReferences ?? []) {
      const r = findByKind(d, ref.apiVersion, ref.kind);
      if (asked.has(ref.uid) || !r) continue;
      asked.add(ref.uid);
      try {
        const now = await request<KubeObject>(objectPath(r, metadata.namespace, ref.name), { quiet: true });
        if (now.metadata.uid && (now.metadata.uid === ref.uid || annotationUID(now) === ref.uid)) live.set(ref.uid, now.metadata.uid);
      } catch (e) {
        if (!is(e, 'NotFound', 404) && !is(e, 'Forbidden', 403)) throw e;
      }
    }
  }
  return live;
}

/** create creates an object in the first of its forms that the server accepts in a dry run. */
async function create(r: Resource, o: KubeObject, dryRun: boolean): Promise<{ created: KubeObject; note: string }> {
  let invalid: unknown;
  for (const { object, note } of createForms(r, o)) {
    try {
      const tried = await write(r, object, 'POST', true);
      return { created: dryRun ? tried : await write(r, object, 'POST', false), note };
    } catch (e) {
      if (!is(e, 'Invalid', 422)) throw e;
      invalid = e;
    }
  }
  throw invalid;
}

async function volumeOf(d: Discovery, claim: KubeObject): Promise<KubeObject | undefined> {
  const r = findByKind(d, 'v1', 'PersistentVolume');
  const name = textAt(claim, 'spec', 'volumeName');
  return r && name ? request<KubeObject>(objectPath(r, '', name), { quiet: true }).catch(() => undefined) : undefined;
}

/** awaitServiceAccount waits for the ServiceAccount of a new namespace, without which Pods are refused, for ten seconds at most. */
async function awaitServiceAccount(d: Discovery, namespace: string): Promise<void> {
  const r = findByKind(d, 'v1', 'ServiceAccount');
  if (!r) return;
  for (const end = Date.now() + 10_000; Date.now() < end; ) {
    try {
      await request(objectPath(r, namespace, 'default'), { quiet: true });
      return;
    } catch (e) {
      if (!is(e, 'NotFound', 404)) return;
    }
    await sleep(100);
  }
}

/** objectsThen lists the objects of a resource at a revision. */
async function objectsThen(r: Resource, namespace: string, at: string): Promise<Candidate[]> {
  const found: Candidate[] = [];
  for (let next = ''; ; ) {
    const page = await requestList<KubeObject>(listPath(r, namespace) + query({ limit: 500, continue: next, asOf: at }), { quiet: true });
    found.push(...page.items.map((object) => ({ resource: r, object })));
    next = page.metadata.continue ?? '';
    if (!next) return found;
  }
}

/** extensionVersions returns the versions (group/version) that extension API servers have, whose past is not kept. */
async function extensionVersions(): Promise<Set<string>> {
  const services = await requestList<APIService>('/apis/apiregistration.k8s.io/v1/apiservices', { quiet: true }).catch(() => null);
  return new Set((services?.items ?? []).flatMap(({ spec }) => (spec?.service ? [`${spec.group ?? ''}/${spec.version ?? ''}`] : [])));
}

/**
 * contentThen returns what was in a namespace, or the objects of a definition, at a revision. left is called with each resource that is
 * left out, and why.
 */
export async function contentThen(
  d: Discovery, container: Candidate, at: string, left: (r: Resource, result: 'skipped' | 'refused', why: string) => void,
): Promise<Candidate[]> {
  const { resource, object } = container;
  const elsewhere = await extensionVersions();
  const inIt = d.resources.filter((r) =>
    isNamespace(resource)
      ? r.namespaced && ['list', 'create'].every((verb) => r.verbs.includes(verb)) && !elsewhere.has(apiVersionOf(r))
      : r.group === textAt(object, 'spec', 'group') && r.plural === textAt(object, 'spec', 'names', 'plural'),
  );
  const found: Candidate[] = [];
  for (const r of inIt) {
    const never = neverUndeleted(r);
    if (never) {
      if (r.group !== 'events.k8s.io') left(r, 'skipped', never); // the same objects as the events of the core group
      continue;
    }
    try {
      found.push(...(await objectsThen(r, isNamespace(resource) ? (object.metadata.name ?? '') : '', at)));
    } catch (e) {
      left(r, 'refused', messageOf(e));
    }
  }
  return found;
}

/** served waits until the server has the resource of a definition that has come back, and returns what it has then. */
export async function served(before: Discovery, definition: KubeObject): Promise<Discovery> {
  const [group, plural] = [textAt(definition, 'spec', 'group'), textAt(definition, 'spec', 'names', 'plural')];
  for (const end = Date.now() + 10_000; ; ) {
    const now = await discover(before);
    if (now.resources.some((r) => r.group === group && r.plural === plural)) return now;
    if (Date.now() > end) throw new Error(`${plural}.${group} is not served yet: undelete its objects later`);
    await sleep(200);
  }
}

export interface Outcome extends Candidate {
  result: 'created' | 'skipped' | 'refused';
  text: string;
  created?: KubeObject;
}

/** undelete creates objects as they were, and yields what became of each. named says that the user named them one by one. */
export async function* undelete(d: Discovery, objects: Candidate[], named: boolean, dryRun: boolean): AsyncGenerator<Outcome> {
  const uids = await liveOwners(d, objects.map((c) => c.object));
  const failed = new Map<string, string>(); // the owners, by their UID, and the namespaces that were refused
  const pending = new Set<string>(); // the namespaces that do not exist in a dry run
  let waited = false;
  for (const { resource: r, object: was, skip } of planned(objects, uids, named)) {
    const { uid = '', name = '', namespace = '' } = was.metadata;
    const core = r.group === '' ? r.kind : '';
    const outcome = (result: Outcome['result'], text: string, created?: KubeObject): Outcome =>
      ({ resource: r, object: was, result, text, ...(created ? { created } : {}) });
    if (skip) {
      yield outcome('skipped', skip);
      continue;
    }
    const refused = [...(was.metadata.ownerReferences ?? []).map((ref) => ref.uid), namespace].find((id) => id && failed.has(id));
    if (refused) {
      failed.set(uid, name);
      yield outcome('skipped', `its owner or namespace ${failed.get(refused)} was refused`);
      continue;
    }
    let done: Outcome;
    try {
      checkNumbers(was);
      const { object, notes } = clean(r, was);
      if (core === 'PersistentVolumeClaim') notes.push(keepVolume(object, await volumeOf(d, object)));
      for (const gone of rewire(object, uids)) notes.push(`without its owner ${gone}, which is gone`);
      if (pending.has(namespace)) {
        uids.set(uid, uid); // of what it owns, nothing is sent either
        notes.push('the server has not checked it, because its namespace does not exist yet');
        yield outcome('created', notes.filter(Boolean).join('; '));
        continue;
      }
      if (core === 'Pod' && !dryRun && !waited) {
        await awaitServiceAccount(d, namespace);
        waited = true;
      }
      // A namespace that exists is so also for a user who may not create any.
      if (core === 'Namespace' && (await request(objectPath(r, '', name), { quiet: true }).then(() => true, () => false))) {
        yield outcome('skipped', EXISTS);
        continue;
      }
      const { created, note } = await create(r, object, dryRun);
      notes.push(note);
      uids.set(uid, created.metadata.uid ?? '');
      if (dryRun && core === 'Namespace') pending.add(name);
      if (!dryRun) notes.push(await restoreManagers(r, was, created, uids));
      done = outcome('created', notes.filter(Boolean).join('; '), created);
    } catch (e) {
      const exists = is(e, 'AlreadyExists', 409);
      if (!exists) failed.set(uid, name);
      if (!exists && core === 'Namespace') failed.set(name, name);
      done = exists ? outcome('skipped', EXISTS) : outcome('refused', messageOf(e));
    }
    yield done;
  }
}

/** restoreManagers gives the fields of an object to their managers of then. It returns a note if that fails. */
export async function restoreManagers(r: Resource, then: KubeObject, written: KubeObject, uids: Map<string, string>): Promise<string> {
  let now = written;
  for (let attempts = 5; ; ) {
    try {
      const managedFields = managersThen(then, now, uids);
      if (JSON.stringify(managedFields) === JSON.stringify(now.metadata.managedFields ?? [])) return '';
      await write(r, { ...now, metadata: { ...now.metadata, managedFields } }, 'PUT', false);
      return '';
    } catch (e) {
      let error = e;
      if (is(e, 'Conflict', 409) && --attempts) { // others change the object too
        try {
          now = await request<KubeObject>(objectPath(r, now.metadata.namespace, now.metadata.name ?? ''), { quiet: true });
          if (now.metadata.uid !== written.metadata.uid) return '';
          continue;
        } catch (another) {
          error = another;
        }
      }
      return is(error, 'NotFound', 404) ? '' : `its fields belong to ${FIELD_MANAGER}, not to their managers of then: ${messageOf(error)}`;
    }
  }
}
