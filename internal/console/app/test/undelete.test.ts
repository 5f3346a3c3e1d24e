import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { carryOut, restoreManagers } from '../src/client/undelete';
import type { KubeObject } from '../src/logic/kubernetes';
import { isContainer, renamed, rewired, withOthers, type Manager, type Step } from '../src/logic/undelete';
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

/** step is one that creates an object. */
const step = ({ resource: r, object: o }: ReturnType<typeof candidate>, over: Partial<Step> = {}): Step => ({
  group: r.group, version: r.version, resource: r.plural, kind: r.kind, name: o.metadata.name ?? '', uid: o.metadata.uid ?? '', object: o,
  ...(o.metadata.namespace ? { namespace: o.metadata.namespace } : {}), ...over,
});

async function outcomes(steps: Step[], dryRun: boolean): Promise<string[]> {
  const found: string[] = [];
  for await (const o of carryOut(discovery, { left: [], steps }, dryRun)) found.push(`${o.name || o.resource} ${o.result}${o.text ? `: ${o.text}` : ''}`);
  return found;
}

test('each object is tried before it is created', async () => {
  assert.deepEqual(await outcomes([step(candidate(WIDGETS, 'w'))], false), ['w created']);
  assert.deepEqual(sent.map((s) => s.what), ['POST /apis/example.com/v1/namespaces/default/widgets dry', 'POST /apis/example.com/v1/namespaces/default/widgets']);
  sent = [];
  assert.deepEqual(await outcomes([step(candidate(WIDGETS, 'w'), { notes: ['without x'] }), step(candidate(WIDGETS, 'v'), { skip: 'the reason' })], true), ['w created: without x', 'v skipped: the reason']);
  assert.equal(sent.length, 1);
});

test('an owner that came back has another UID', async () => {
  const a = candidate(WIDGETS, 'a');
  const b = candidate(WIDGETS, 'b', { ownerReferences: [owner(a, false)] });
  assert.deepEqual(await outcomes([step(a), step(b)], false), ['a created', 'b created']);
  assert.equal(sent.at(-1)!.body.metadata.ownerReferences?.[0]?.uid, 'new-a');
  refuse = (_, o) => (o.metadata.name === 'a' ? 409 : 0);
  assert.deepEqual(await outcomes([step(a), step(b)], true), ['a skipped: an object of this name exists', 'b created: without its owner Widget a, which is gone']);
});

test('what depends on a refused object is left out', async () => {
  refuse = (_, o) => (o.metadata.name === 'a' ? 403 : 0);
  const a = candidate(WIDGETS, 'a');
  assert.deepEqual(await outcomes([a, candidate(WIDGETS, 'b', { ownerReferences: [owner(a, false)] }), candidate(WIDGETS, 'c')].map((c) => step(c)), false), [
    'a refused: is Forbidden', 'b skipped: its owner or namespace a was refused', 'c created',
  ]);
});

test('nothing is sent into a namespace that a dry run has not created', async () => {
  const steps = [step(candidate(NAMESPACES, 'default')), step(candidate(WIDGETS, 'w'))];
  assert.deepEqual(await outcomes(steps, true), ['default created', 'w created: the server has not checked it, because its namespace does not exist yet']);
  assert.deepEqual(sent.map((s) => s.what), ['POST /api/v1/namespaces dry']);
});

test('another form is sent if the first one is invalid', async () => {
  const form = (clusterIP?: string): KubeObject => object(SERVICES, 's', {}, { spec: clusterIP ? { clusterIP } : {} });
  const alternatives = [{ object: form(), note: 'with another cluster IP' }];
  refuse = (_, o) => ((o.spec as { clusterIP?: string }).clusterIP ? 422 : 0);
  assert.deepEqual(await outcomes([step(candidate(SERVICES, 's'), { object: form('10.0.0.1'), alternatives })], true), ['s created: with another cluster IP']);
  refuse = () => 422;
  assert.deepEqual(await outcomes([step(candidate(SERVICES, 's'), { object: form('10.0.0.1'), alternatives })], true), ['s refused: is Invalid']);
});

test('what comes back with a definition', async () => {
  const r = resource('customresourcedefinitions.apiextensions.k8s.io', 'CustomResourceDefinition', { namespaced: false });
  const definition = step(candidate(r, 'd'), { contentAsOf: '7' });
  assert.deepEqual(await outcomes([definition], true), ['d created', 'customresourcedefinitions skipped: the objects of d come back with it, and cannot be looked at before']);
  stored.set('/apis/apiextensions.k8s.io/v1/customresourcedefinitions/d/undelete', {
    left: [{ resource: 'gadgets', reason: 'forbidden', refused: true }], steps: [{ ...definition, skip: 'an object of this name exists' }, step(candidate(WIDGETS, 'w'))],
  });
  assert.deepEqual(await outcomes([definition], false), ['d created', 'gadgets refused: forbidden', 'w created']);
});

test('fields belong to their managers of then', async () => {
  const entry = (manager: string, subresource = ''): Manager => ({ manager, operation: 'Update', ...(subresource ? { subresource } : {}), fieldsV1: { [`k:{"uid":"then-a"}`]: {} } });
  const now = [entry('keelson-console'), entry('other'), entry('kubelet', 'status')];
  assert.deepEqual(withOthers([entry('kubectl'), entry('other')], now).map((e) => e.manager), ['kubectl', 'other', 'kubelet']);
  assert.deepEqual(Object.keys(renamed([entry('a')], new Map([['then-a', 'now-a'], ['x', '']]))[0]?.fieldsV1 ?? {}), ['k:{"uid":"now-a"}']);
  assert.equal(await restoreManagers(PODS, [], object(PODS, 'p')), '');
  assert.equal(sent.length, 0, 'nothing is known of then');
  assert.equal(await restoreManagers(PODS, [entry('kubectl')], object(PODS, 'p')), '');
  assert.equal(sent[0]?.what, 'PUT /api/v1/namespaces/default/pods/p');
});

test('owners', () => {
  const o = object(PODS, 'p', { ownerReferences: [owner(candidate(PODS, 'a')), owner(candidate(PODS, 'b'))] });
  const { object: to, dropped } = rewired(o, new Map([['uid-a', '']]));
  assert.deepEqual([to.metadata.ownerReferences?.map((ref) => ref.uid), dropped], [['uid-b'], ['Pod a']]);
  assert.equal('ownerReferences' in rewired(o, new Map([['uid-a', ''], ['uid-b', '']])).object.metadata, false);
});

test('what comes back with its content', () => {
  assert.deepEqual([NAMESPACES, resource('customresourcedefinitions.apiextensions.k8s.io', 'CustomResourceDefinition', { namespaced: false }), WIDGETS].map(isContainer), [true, true, false]);
});
