import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { beforeDeletion, contentThen, undelete, type Outcome } from '../src/client/undelete';
import type { KubeObject } from '../src/logic/kubernetes';
import type { Candidate } from '../src/logic/plan';
import { candidate, discovery, NAMESPACES, object, owner, PODS, resource, SERVICES, WIDGETS } from './make';

/** What the server has, by path, and what it was sent: "POST /path?dryRun" and bodies. */
let stored: Map<string, unknown>;
let sent: { what: string; body: KubeObject }[];
/** refuse returns the code that a write is refused with, 0 if it is carried out. */
let refuse: (what: string, o: KubeObject) => number;

const answer = (code: number, body: unknown): Response => new Response(JSON.stringify(body), { status: code });

beforeEach(() => {
  Object.assign(globalThis, { document: Object.assign(new EventTarget(), { hidden: false }) });
  [stored, sent, refuse] = [new Map<string, unknown>(), [], () => 0];
  mock.method(globalThis, 'fetch', (to: string, o: RequestInit) => {
    const [path = '', search] = to.split('?');
    if (o.method === 'GET') {
      const found = stored.get(to) ?? stored.get(path);
      return Promise.resolve(found === undefined ? answer(404, { reason: 'NotFound', message: 'not found' }) : answer(200, found));
    }
    const body = JSON.parse(o.body as string) as KubeObject;
    const what = `${o.method ?? ''} ${path}${search?.includes('dryRun=All') ? ' dry' : ''}`;
    sent.push({ what, body });
    const code = refuse(what, body);
    const reason = { 403: 'Forbidden', 409: 'AlreadyExists', 422: 'Invalid' }[code];
    return Promise.resolve(code ? answer(code, { reason, message: `is ${reason ?? ''}` }) : answer(201, { ...body, metadata: { ...body.metadata, uid: `new-${body.metadata.name ?? ''}` } }));
  });
});
afterEach(() => mock.reset());

async function outcomes(objects: Candidate[], dryRun: boolean, named = false): Promise<string[]> {
  const found: Outcome[] = [];
  for await (const one of undelete(discovery, objects, named, dryRun)) found.push(one);
  return found.map((o) => `${o.object.metadata.name ?? ''} ${o.result}${o.text ? `: ${o.text}` : ''}`);
}

const HISTORY = '/apis/example.com/v1/namespaces/default/widgets/w/history';
const change = (type: string, resourceVersion: string, uid: string, deleting = false): unknown => ({
  type, resourceVersion, uid, object: object(WIDGETS, 'w', deleting ? { deletionTimestamp: 't' } : {}),
});

test('the version before a deletion was asked for, over pages', async () => {
  stored.set(`${HISTORY}?limit=50&objects=true`, { items: [change('Deleted', '90', 'u', true), change('Updated', '80', 'u', true)], metadata: { continue: 'c' } });
  stored.set(`${HISTORY}?limit=50&continue=c&objects=true`, { items: [change('Updated', '70', 'u', true), change('Updated', '60', 'u')] });
  assert.equal(await beforeDeletion(WIDGETS, 'default', 'w'), '69');
  stored.set(`${HISTORY}?limit=50&objects=true`, { items: [change('Deleted', '9007199254740995', 'u'), change('Deleted', '80', 'other', true)] });
  assert.equal(await beforeDeletion(WIDGETS, 'default', 'w'), '9007199254740994', 'revisions are larger than numbers');
  stored.set(`${HISTORY}?limit=50&objects=true`, { items: [change('Updated', '90', 'u')] });
  assert.equal(await beforeDeletion(WIDGETS, 'default', 'w'), '', 'it exists');
  stored.set(`${HISTORY}?limit=50&objects=true`, { items: [] });
  await assert.rejects(beforeDeletion(WIDGETS, 'default', 'w'), /no history/);
  stored.set(`${HISTORY}?limit=50&objects=true`, { items: [{ type: 'Expired', resourceVersion: '90' }] });
  await assert.rejects(beforeDeletion(WIDGETS, 'default', 'w'), /not kept any more/);
});

test('each object is tried before it is created', async () => {
  assert.deepEqual(await outcomes([candidate(WIDGETS, 'w')], false), ['w created']);
  assert.deepEqual(sent.map((s) => s.what), ['POST /apis/example.com/v1/namespaces/default/widgets dry', 'POST /apis/example.com/v1/namespaces/default/widgets']);
  sent = [];
  assert.deepEqual(await outcomes([candidate(WIDGETS, 'w')], true), ['w created']);
  assert.equal(sent.length, 1);
});

test('an owner that came back has another UID', async () => {
  const a = candidate(WIDGETS, 'a');
  assert.deepEqual(await outcomes([candidate(WIDGETS, 'b', { ownerReferences: [owner(a, false)] }), a], false), ['a created', 'b created']);
  assert.equal(sent.at(-1)!.body.metadata.ownerReferences?.[0]?.uid, 'new-a');
  assert.deepEqual(await outcomes([candidate(WIDGETS, 'b', { ownerReferences: [owner(a, false)] })], true), ['b created: without its owner Widget a, which is gone']);
});

test('what depends on a refused object is left out', async () => {
  refuse = (_, o) => (o.metadata.name === 'a' ? 403 : 0);
  const a = candidate(WIDGETS, 'a');
  assert.deepEqual(await outcomes([a, candidate(WIDGETS, 'b', { ownerReferences: [owner(a, false)] }), candidate(WIDGETS, 'c')], false), [
    'a refused: is Forbidden', 'b skipped: its owner or namespace a was refused', 'c created',
  ]);
  refuse = (_, o) => (o.metadata.name === 'a' ? 409 : 0);
  assert.equal((await outcomes([a], false))[0], 'a skipped: an object of this name exists');
});

test('nothing is sent into a namespace that a dry run has not created', async () => {
  const objects = [candidate(NAMESPACES, 'default'), candidate(WIDGETS, 'w')];
  assert.deepEqual(await outcomes(objects, true), ['default created', 'w created: the server has not checked it, because its namespace does not exist yet']);
  assert.deepEqual(sent.map((s) => s.what), ['POST /api/v1/namespaces dry']);
  stored.set('/api/v1/namespaces/default', {});
  assert.deepEqual(await outcomes(objects, true), ['default skipped: an object of this name exists', 'w created']);
});

test('a Service whose address is taken gets another one', async () => {
  refuse = (_, o) => ((o.spec as { clusterIP?: string }).clusterIP ? 422 : 0);
  assert.deepEqual(await outcomes([candidate(SERVICES, 's', {}, { spec: { clusterIP: '10.0.0.1' } })], true), ['s created: with another cluster IP']);
  refuse = () => 422;
  assert.deepEqual(await outcomes([candidate(SERVICES, 's', {}, { spec: { clusterIP: '10.0.0.1' } })], true), ['s refused: is Invalid']);
});

test('the content of a namespace, and of a definition', async () => {
  const left: string[] = [];
  const content = async (container: Candidate): Promise<string[]> =>
    (await contentThen(discovery, container, '5', (r, result, why) => left.push(`${r.plural} ${result}: ${why}`))).map((c) => `${c.resource.kind} ${c.object.metadata.name ?? ''}`);
  stored.set('/api/v1/namespaces/n/pods?limit=500&asOf=5', { items: [object(PODS, 'p')], metadata: { continue: 'c' } });
  stored.set('/api/v1/namespaces/n/pods?limit=500&continue=c&asOf=5', { items: [object(PODS, 'q')] });
  stored.set('/apis/example.com/v1/widgets?limit=500&asOf=5', { items: [object(WIDGETS, 'w')] });
  assert.deepEqual(await content(candidate(NAMESPACES, 'n')), ['Pod p', 'Pod q']);
  assert.ok(left.includes('secrets refused: not found') && !left.some((l) => l.startsWith('nodes')));
  const definitions = resource('customresourcedefinitions.apiextensions.k8s.io', 'CustomResourceDefinition', { namespaced: false });
  assert.deepEqual(await content(candidate(definitions, 'd', {}, { spec: { group: 'example.com', names: { plural: 'widgets' } } })), ['Widget w']);
});
