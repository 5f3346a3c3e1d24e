// How objects come back: the server plans it, and this page creates them by ordinary requests.

import { APIError, FIELD_MANAGER, messageOf, type KubeObject } from '../logic/kubernetes';
import { query } from '../logic/links';
import { escapeSegment, findByKind, listPath, objectPath, type Discovery, type Resource } from '../logic/resources';
import { renamed, resourceOf, rewired, withOthers, type Manager, type Plan, type Step } from '../logic/undelete';
import { checkNumbers } from '../logic/yaml';
import { request, sleep } from './request';

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

/** planOf returns how an object comes back, or gets the content that it had. Without asOf it is as before its deletion. */
export const planOf = (r: Resource, namespace: string, name: string, how: 'undelete' | 'revert', asOf = '', signal?: AbortSignal): Promise<Plan> =>
  request<Plan>(objectPath(r, namespace, name, how) + query({ asOf, fieldManager: FIELD_MANAGER }), { signal });

/** planOfDeleted returns how everything comes back that was deleted in a namespace, or in all, since a time. */
export const planOfDeleted = (namespace: string, since: string, fieldSelector: string): Promise<Plan> =>
  request<Plan>(
    `/apis/history.keelson.dev/v1alpha1${namespace ? `/namespaces/${escapeSegment(namespace)}` : ''}/undelete` +
      query({ since, fieldSelector, fieldManager: FIELD_MANAGER }),
  );

/** create creates an object in the first of its forms that the server accepts in a dry run. */
async function create(s: Step, uids: Map<string, string>, dryRun: boolean): Promise<{ created: KubeObject; notes: string[] }> {
  let invalid: unknown;
  const r = resourceOf(s);
  for (const form of [{ object: s.object, note: '' }, ...(s.alternatives ?? [])]) {
    if (!form.object) break;
    const { object, dropped } = rewired(form.object, uids);
    try {
      const tried = await write(r, object, 'POST', true);
      const created = dryRun ? tried : await write(r, object, 'POST', false);
      return { created, notes: [...dropped.map((owner) => `without its owner ${owner}, which is gone`), form.note] };
    } catch (e) {
      if (!is(e, 'Invalid', 422)) throw e;
      invalid = e;
    }
  }
  throw invalid;
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

/** Outcome is what became of a step, or of a resource that is left out; that has no name. */
export interface Outcome {
  resource: string;
  group: string;
  namespace: string;
  name: string;
  result: 'created' | 'skipped' | 'refused';
  text: string;
  created?: KubeObject;
}

/** carryOut creates the objects of a plan in its order, and yields what became of each. */
export async function* carryOut(d: Discovery, plan: Plan, dryRun: boolean): AsyncGenerator<Outcome> {
  const work = new Work(d, dryRun);
  yield* work.carryOut(plan);
}

class Work {
  /** The UIDs of now by those of then, '' of what was not created. */
  private readonly uids = new Map<string, string>();
  /** The owners, by their UID, and the namespaces that were refused. */
  private readonly failed = new Map<string, string>();
  /** The namespaces that do not exist in a dry run. */
  private readonly pending = new Set<string>();
  private waited = false;

  constructor(
    private readonly discovery: Discovery,
    private readonly dryRun: boolean,
  ) {}

  async *carryOut({ left, steps }: Plan): AsyncGenerator<Outcome> {
    for (const l of left) {
      yield { resource: l.resource, group: l.group ?? '', namespace: l.namespace ?? '', name: l.name ?? '', result: l.refused ? 'refused' : 'skipped', text: l.reason };
    }
    for (const s of steps) {
      const outcome = await this.step(s);
      yield outcome;
      if (s.contentAsOf && outcome.result === 'created') yield* this.content(s);
    }
  }

  /** content creates what comes back with an object that was created. */
  private async *content(s: Step): AsyncGenerator<Outcome> {
    const { resource, group = '', name } = s;
    const about = { resource, group, namespace: '', name: '' };
    if (this.dryRun) {
      yield { ...about, result: 'skipped', text: `the objects of ${name} come back with it, and cannot be looked at before` };
      return;
    }
    try {
      const { left, steps } = await planOf(resourceOf(s), '', name, 'undelete', s.contentAsOf);
      yield* this.carryOut({ left, steps: steps.filter(({ uid }) => uid !== s.uid) });
    } catch (e) {
      yield { ...about, result: 'refused', text: messageOf(e) };
    }
  }

  private async step(s: Step): Promise<Outcome> {
    const { uid = '', resource, group = '', namespace = '', name, object } = s;
    const outcome = (result: Outcome['result'], text: string, created?: KubeObject): Outcome =>
      ({ resource, group, namespace, name, result, text, ...(created ? { created } : {}) });
    this.uids.set(uid, ''); // unless it is created
    if (s.refused) return this.refuse(s, outcome('refused', s.skip ?? ''));
    if (s.skip || !object) return outcome('skipped', s.skip ?? '');
    const refused = [...(object.metadata.ownerReferences ?? []).map((ref) => ref.uid), namespace].find((id) => id && this.failed.has(id));
    if (refused) {
      this.failed.set(uid, name);
      return outcome('skipped', `its owner or namespace ${this.failed.get(refused)} was refused`);
    }
    if (this.pending.has(namespace)) {
      this.uids.set(uid, uid); // of what it owns, nothing is sent either
      return outcome('created', [...(s.notes ?? []), 'the server has not checked it, because its namespace does not exist yet'].join('; '));
    }
    const isNamespace = group === '' && s.kind === 'Namespace';
    try {
      checkNumbers(object);
      if (group === '' && s.kind === 'Pod' && !this.dryRun && !this.waited) {
        await awaitServiceAccount(this.discovery, namespace);
        this.waited = true;
      }
      const { created, notes } = await create(s, this.uids, this.dryRun);
      this.uids.set(uid, created.metadata.uid ?? '');
      if (this.dryRun && isNamespace) this.pending.add(name);
      if (!this.dryRun) notes.push(await restoreManagers(resourceOf(s), renamed(s.managedFields ?? [], this.uids), created));
      return outcome('created', [...(s.notes ?? []), ...notes].filter(Boolean).join('; '), created);
    } catch (e) {
      if (is(e, 'AlreadyExists', 409)) return outcome('skipped', 'an object of this name exists');
      return this.refuse(s, outcome('refused', messageOf(e)));
    }
  }

  /** refuse notes an object that cannot be created: what it owns, or what is in it, is not created either. */
  private refuse(s: Step, outcome: Outcome): Outcome {
    this.failed.set(s.uid ?? '', s.name);
    if ((s.group ?? '') === '' && s.kind === 'Namespace') this.failed.set(s.name, s.name);
    return outcome;
  }
}

/** restoreManagers gives the fields of an object to their managers of then. It returns a note if that fails. */
export async function restoreManagers(r: Resource, then: Manager[], written: KubeObject): Promise<string> {
  let now = written;
  for (let attempts = 5; then.length; ) {
    try {
      const managedFields = withOthers(then, now.metadata.managedFields ?? []);
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
  return '';
}
