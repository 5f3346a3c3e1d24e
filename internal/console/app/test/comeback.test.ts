import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clean, createForms, isContainer, keepVolume, managersThen, revertedTo, rewire, UNDELETED } from '../src/logic/comeback';
import type { KubeObject } from '../src/logic/kubernetes';
import { NAMESPACES, object, PODS, resource, SECRETS, SERVICES, WIDGETS } from './make';

const JOBS = resource('jobs.batch', 'Job');
const CLAIMS = resource('persistentvolumeclaims', 'PersistentVolumeClaim');
const VOLUMES = resource('persistentvolumes', 'PersistentVolume', { namespaced: false });

test('an object comes back without what the server sets', () => {
  const was = object(WIDGETS, 'w', {
    resourceVersion: '5', creationTimestamp: 't', managedFields: [{}], generation: 3, deletionTimestamp: 't', deletionGracePeriodSeconds: 0,
    finalizers: ['example.com/clean', 'foregroundDeletion', 'kubernetes.io/x', 'batch.k8s.io/y'], labels: { a: 'b' },
  }, { spec: { nodeName: 'n' }, status: { ready: true } });
  const before = structuredClone(was);
  const { object: o, notes } = clean(WIDGETS, was);
  assert.deepEqual(o, {
    apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'w', namespace: 'default', labels: { a: 'b' }, annotations: { [UNDELETED]: 'uid-w' } }, spec: { nodeName: 'n' },
  });
  assert.deepEqual(notes, ['without its finalizers example.com/clean']);
  assert.deepEqual(was, before, 'what was is not changed');
});

test('what a kind of Kubernetes loses', () => {
  const spec = (r: typeof PODS, of: object, rest = {}): unknown => clean(r, object(r, 'x', {}, { spec: of, ...rest })).object.spec;
  assert.deepEqual(spec(NAMESPACES, { finalizers: ['kubernetes'] }), {});
  assert.deepEqual(spec(PODS, { nodeName: 'n', ephemeralContainers: [], containers: [] }), { containers: [] });
  assert.deepEqual(spec(VOLUMES, { claimRef: { name: 'c', uid: 'u', resourceVersion: '1' } }), { claimRef: { name: 'c' } });
  const labels = { 'controller-uid': 'u', 'job-name': 'x', mine: 'y' };
  const job = (own: object): KubeObject => clean(JOBS, object(JOBS, 'x', { labels: { ...labels } }, { spec: { selector: {}, template: { metadata: { labels: { ...labels } } }, ...own } })).object;
  assert.deepEqual(job({}).spec, { template: { metadata: { labels: { mine: 'y' } } } });
  assert.deepEqual(job({}).metadata.labels, { mine: 'y' });
  assert.deepEqual(job({ manualSelector: true }).metadata.labels, labels);
  const secret = clean(SECRETS, object(SECRETS, 's', { annotations: { 'kubernetes.io/service-account.uid': 'u' } }, { type: 'kubernetes.io/service-account-token', data: { token: 'x' } }));
  assert.ok(!('data' in secret.object));
  assert.deepEqual(secret.object.metadata.annotations, { [UNDELETED]: 'uid-s' });
  const claim = clean(CLAIMS, object(CLAIMS, 'c', { annotations: { 'pv.kubernetes.io/bind-completed': 'yes', other: 'x' } }));
  assert.deepEqual(claim.object.metadata.annotations, { other: 'x', [UNDELETED]: 'uid-c' });
  assert.doesNotThrow(() => clean(PODS, object(PODS, 'p')), 'without a spec');
});

test('a revert keeps what cannot change', () => {
  const now = object(SERVICES, 's', { resourceVersion: '9', labels: { now: 'x' }, annotations: { [UNDELETED]: 'u' } }, { spec: { clusterIP: '10.0.0.1', ports: [1] }, status: { a: 1 } });
  const then = object(SERVICES, 's', { resourceVersion: '3', annotations: { then: 'y' } }, { spec: { clusterIP: '10.0.0.9', clusterIPs: ['10.0.0.9'], ports: [2] }, status: { a: 0 } });
  assert.deepEqual(revertedTo(SERVICES, now, then), {
    ...now, metadata: { name: 's', uid: 'uid-s', namespace: 'default', resourceVersion: '9', annotations: { then: 'y', [UNDELETED]: 'u' } }, spec: { clusterIP: '10.0.0.1', ports: [2] },
  });
  const job = (labels: object | undefined): KubeObject => object(JOBS, 'j', {}, { spec: labels ? { template: { metadata: { labels } } } : {} });
  assert.deepEqual(revertedTo(JOBS, job({ uid: 'now' }), job(undefined)).spec, { template: { metadata: { labels: { uid: 'now' } } } });
  assert.deepEqual(revertedTo(JOBS, job(undefined), job({ uid: 'then' })).spec, { template: { metadata: {} } });
  assert.throws(() => revertedTo(PODS, object(PODS, 'p'), object(PODS, 'p', {}, { spec: { n: 2 ** 60 } })), /2\^53/);
  assert.deepEqual(revertedTo(WIDGETS, object(WIDGETS, 'w', {}, { a: 1 }), object(WIDGETS, 'w', {}, { b: 2 })), object(WIDGETS, 'w', {}, { b: 2 }));
});

test('the volume of a claim', () => {
  const claim = (): KubeObject => object(CLAIMS, 'c', {}, { spec: { volumeName: 'v' } });
  const volume = (claimRef?: object): KubeObject => object(VOLUMES, 'v', {}, { spec: { claimRef } });
  const kept = claim();
  assert.equal(keepVolume(kept, volume()), '');
  assert.match(keepVolume(kept, volume({ namespace: 'default', name: 'c' })), /is bound again/);
  assert.deepEqual(kept.spec, { volumeName: 'v' });
  for (const gone of [undefined, volume({ namespace: 'default', name: 'other' })]) {
    const lost = claim();
    assert.match(keepVolume(lost, gone), /the data does not come back/);
    assert.deepEqual(lost.spec, {});
  }
  assert.equal(keepVolume(object(CLAIMS, 'c'), undefined), '');
});

test('owners have their UIDs of now', () => {
  const ref = (name: string): { apiVersion: string; kind: string; name: string; uid: string } => ({ apiVersion: 'v1', kind: 'Pod', name, uid: `then-${name}` });
  const o = object(PODS, 'p', { ownerReferences: [ref('a'), ref('b')] });
  assert.deepEqual(rewire(o, new Map([['then-a', 'now-a']])), ['Pod b']);
  assert.deepEqual(o.metadata.ownerReferences, [{ ...ref('a'), uid: 'now-a' }]);
  assert.deepEqual(rewire(o, new Map()), ['Pod a']);
  assert.ok(!('ownerReferences' in o.metadata));
});

test('a Service is tried with its addresses and ports first', () => {
  const service = (spec: object): KubeObject => object(SERVICES, 's', {}, { spec });
  const forms = (o: KubeObject): [string, unknown][] => createForms(SERVICES, o).map((f) => [f.note, f.object.spec]);
  const ports = [{ port: 80, nodePort: 30_000 }];
  assert.deepEqual(forms(service({ clusterIP: '10.0.0.1', clusterIPs: ['10.0.0.1'], ports })), [
    ['', { clusterIP: '10.0.0.1', clusterIPs: ['10.0.0.1'], ports }],
    ['with another cluster IP', { ports }],
    ['with other node ports', { clusterIP: '10.0.0.1', clusterIPs: ['10.0.0.1'], ports: [{ port: 80 }] }],
    ['with another cluster IP and other node ports', { ports: [{ port: 80 }] }],
  ]);
  assert.equal(forms(service({ clusterIP: '10.0.0.1', ports: [{ port: 80 }] })).length, 2);
  assert.equal(forms(service({ clusterIP: 'None', ports })).length, 1);
  assert.equal(createForms(PODS, object(PODS, 'p', {}, { spec: { clusterIP: '1' } })).length, 1);
});

test('fields belong to their managers of then', () => {
  const entry = (manager: string, subresource?: string): object => ({ manager, operation: 'Update', apiVersion: 'v1', ...(subresource ? { subresource } : {}), fieldsV1: { [`k:{"uid":"then-a"}`]: {} } });
  const then = object(PODS, 'p', { managedFields: [entry('kubectl'), entry('kubelet', 'status')] as never, ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'a', uid: 'then-a' }] });
  const now = object(PODS, 'p', { managedFields: [entry('keelson-console'), entry('other'), entry('kubelet', 'status')] as never });
  const managers = (o: KubeObject): unknown[] => managersThen(then, o, new Map([['then-a', 'now-a']])).map((e) => [e.manager, e.subresource, Object.keys(e.fieldsV1 ?? {})[0]]);
  assert.deepEqual(managers(now), [['kubectl', undefined, 'k:{"uid":"now-a"}'], ['other', undefined, 'k:{"uid":"then-a"}'], ['kubelet', 'status', 'k:{"uid":"then-a"}']]);
  now.metadata.annotations = { [UNDELETED]: 'u' };
  assert.deepEqual(managers(now)[1], ['keelson-console', undefined, 'f:metadata'], 'the annotation is of the page');
  assert.deepEqual(managersThen(object(PODS, 'p'), now, new Map()), now.metadata.managedFields, 'nothing is known of then');
});

test('what comes back with its content', () => {
  assert.deepEqual([NAMESPACES, resource('customresourcedefinitions.apiextensions.k8s.io', 'CustomResourceDefinition'), WIDGETS].map(isContainer), [true, true, false]);
});
