import assert from 'node:assert/strict';
import { test } from 'node:test';
import { builtIn, neverUndeleted, planned, type Candidate } from '../src/logic/plan';
import { candidate, DEPLOYMENTS, NAMESPACES, owner, PODS, REPLICASETS, resource, SECRETS, SERVICES, WIDGETS, random } from './make';

const names = (objects: Candidate[], live: [string, string][] = [], named = false): string[] =>
  planned(objects, new Map(live), named).map((s) => s.object.metadata.name! + (s.skip ? ` - ${s.skip}` : ''));

test('the order of kinds', () => {
  assert.deepEqual(
    names([candidate(DEPLOYMENTS, 'deployment'), candidate(SERVICES, 'service'), candidate(WIDGETS, 'widget'), candidate(SECRETS, 'secret'), candidate(NAMESPACES, 'namespace'), candidate(resource('others.apps', 'Other'), 'other')]),
    ['namespace', 'secret', 'widget', 'service', 'deployment', 'other'],
  );
});

test('owners are before what they own, also against the order of kinds', () => {
  const workload = candidate(DEPLOYMENTS, 'workload');
  assert.deepEqual(names([candidate(SECRETS, 'secret', { ownerReferences: [owner(workload)] }), workload]), ['workload', 'secret']);
});

test('owners in a circle are all created', () => {
  const a = candidate(WIDGETS, 'a');
  const b = candidate(WIDGETS, 'b', { ownerReferences: [owner(a, false)] });
  a.object.metadata.ownerReferences = [owner(b, false)];
  assert.deepEqual(names([a, b]).sort(), ['a', 'b']);
});

test('what a controller makes again is left out', () => {
  const deployment = candidate(DEPLOYMENTS, 'web');
  const set = candidate(REPLICASETS, 'web-1', { ownerReferences: [owner(deployment)] });
  const pod = candidate(PODS, 'web-1-x', { ownerReferences: [owner(set)] });
  assert.deepEqual(names([pod, set, deployment]), [
    'web', 'web-1 - the Deployment web makes it again', 'web-1-x - the ReplicaSet web-1 makes it again',
  ]);
  assert.deepEqual(names([pod]), ['web-1-x'], 'its owner is gone');
  assert.deepEqual(names([pod], [['uid-web-1', 'new']]), ['web-1-x - the ReplicaSet web-1 makes it again'], 'its owner exists');
  assert.deepEqual(names([pod], [['uid-web-1', 'new']], true), ['web-1-x - the ReplicaSet web-1 makes it again'], 'also if it is named');
});

test('what is left out, unless it is named', () => {
  for (const [c, why] of [
    [candidate(resource('events', 'Event'), 'e'), /Events report/],
    [candidate(resource('leases.coordination.k8s.io', 'Lease'), 'l'), /takes a new one/],
    [candidate(PODS, 'p', { deletionTimestamp: 't' }), /being deleted/],
    [candidate(resource('configmaps', 'ConfigMap'), 'kube-root-ca.crt'), /in each namespace/],
    [candidate(resource('serviceaccounts', 'ServiceAccount'), 'default'), /in each namespace/],
    [candidate(resource('endpointslices.discovery.k8s.io', 'EndpointSlice'), 's', { labels: { 'endpointslice.kubernetes.io/managed-by': 'c.k8s.io' } }), /for a Service/],
    [candidate(PODS, 'm', { annotations: { 'kubernetes.io/config.mirror': 'x' } }), /kubelet/],
    [candidate(SECRETS, 't', {}, { type: 'kubernetes.io/service-account-token' }), /another UID/],
    [candidate(PODS, 'd', {}, { status: { phase: 'Succeeded' } }), /had finished/],
    [candidate(resource('jobs.batch', 'Job'), 'j', {}, { status: { conditions: [{ type: 'Complete', status: 'True' }] } }), /had finished/],
  ] as const) {
    assert.match(names([c])[0]!, why);
    assert.doesNotMatch(names([c], [], true)[0]!, / - /, 'named');
  }
  for (const c of [
    candidate(NAMESPACES, 'n', { deletionTimestamp: 't' }), candidate(WIDGETS, 'default', {}, { status: { phase: 'Failed' } }),
    candidate(resource('leases.example.com', 'Lease'), 'l'), candidate(resource('jobs.batch', 'Job'), 'j', {}, { status: { conditions: [{ type: 'Complete', status: 'False' }] } }),
  ]) {
    assert.doesNotMatch(names([c])[0]!, / - /);
  }
});

test('groups of Kubernetes', () => {
  for (const group of ['', 'apps', 'batch', 'networking.k8s.io']) assert.ok(builtIn(group), group);
  for (const group of ['example.com', 'gateway.networking.k8s.io', 'x.k8s.io']) assert.ok(!builtIn(group), group);
  assert.equal(neverUndeleted(WIDGETS), '');
});

test('random owners: each object once, owners first, the same order from any beginning', () => {
  const next = random(3);
  const kinds = [PODS, SECRETS, SERVICES, DEPLOYMENTS, REPLICASETS, WIDGETS];
  for (let run = 0; run < 200; run++) {
    const objects: Candidate[] = [];
    for (let i = 0; i < 12; i++) {
      const owners = objects.filter(() => next(5) === 0).map((o) => owner(o, next(2) === 0));
      objects.push(candidate(kinds[next(kinds.length)]!, `o${i}`, { ownerReferences: owners }));
    }
    const steps = planned(objects, new Map(), false);
    assert.equal(new Set(steps.map((s) => s.object)).size, objects.length);
    const at = new Map(steps.map((s, i) => [s.object.metadata.uid, i]));
    for (const { object } of steps) {
      for (const ref of object.metadata.ownerReferences ?? []) assert.ok(at.get(ref.uid)! < at.get(object.metadata.uid)!);
    }
    assert.deepEqual(planned([...objects].reverse(), new Map(), false), steps);
  }
});
