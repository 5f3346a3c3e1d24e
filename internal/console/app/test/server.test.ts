import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containersOf, plain } from '../src/logic/logs';
import { one, parseMetrics, quantiles, queued, sums } from '../src/logic/metrics';
import { gives, grantsOf, type Binding } from '../src/logic/rbac';
import { object, PODS, resource } from './make';

const TEXT = `# HELP requests a counter
requests_total{verb="GET",path="a \\"quoted\\" } brace",x="1\\n2"} 5 1700000000
requests_total{verb="GET",} 2
requests_total{verb="LIST"} 1e3
memory 12.5
duration_bucket{verb="GET",le="0.1"} 50
duration_bucket{verb="GET",le="0.2"} 90
duration_bucket{verb="GET",le="+Inf"} 100
duration_bucket{verb="NONE",le="+Inf"} 0
unwanted 1
`;

test('metrics', () => {
  const samples = parseMetrics(TEXT, (name) => name !== 'unwanted');
  assert.equal(samples.length, 8);
  assert.deepEqual(samples[0], { name: 'requests_total', labels: { verb: 'GET', path: 'a "quoted" } brace', x: '1\n2' }, value: 5 });
  assert.deepEqual([...sums(samples, 'requests_total', ['verb'])], [['GET', 7], ['LIST', 1000]]);
  assert.equal(one(samples, 'memory'), 12.5);
  assert.equal(one(samples, 'unwanted'), undefined);
});

test('quantiles are between the bounds of a bucket', () => {
  const of = (q: number): number => quantiles(parseMetrics(TEXT, () => true), 'duration', ['verb'], q).get('GET')!.value;
  assert.ok(Math.abs(of(0.7) - 0.15) < 1e-9);
  assert.ok(Math.abs(of(0.25) - 0.05) < 1e-9);
  assert.equal(of(0.99), 0.2, 'above the last bound nothing is known');
  assert.deepEqual([...quantiles(parseMetrics(TEXT, () => true), 'duration', ['verb'], 0.5).keys()], ['GET']);
});

test('requests that wait', () => {
  const text = 'PriorityLevelName, FlowSchemaName, UserName\nlow, other, jane\nlow, other, jane\nlow, system, with, comma\n';
  assert.deepEqual([...queued(text)!], [['jane (other)', 2], ['another user (system)', 1]]);
  assert.equal(queued(''), undefined);
  assert.equal(queued('<html>'), undefined);
});

test('a log draws nothing and hides nothing', () => {
  assert.equal(plain('\u001b[31mred\u001b[0m \u001b]0;title\u0007text \u001b(B'), 'red text ');
  assert.equal(plain('a\rb\bc\td\u202ee\u200bf'), 'abc\tdef');
  assert.equal(plain('x'.repeat(30_000)).length, 20_002);
  assert.deepEqual(containersOf(object(PODS, 'p', {}, { spec: { containers: [{ name: 'a' }, null], initContainers: [{ name: 'b' }] } })), ['a', '', 'b']);
  assert.deepEqual(containersOf(object(PODS, 'p')), []);
});

test('which binding gives a rule', () => {
  const bindings = resource('rolebindings.rbac.authorization.k8s.io', 'RoleBinding');
  const binding = (name: string, subject: object, roleRef: object): Binding => object(bindings, name, {}, { subjects: [subject, null], roleRef });
  const roles = [object(bindings, 'r', {}, { rules: [{ verbs: ['get', 'list'], resources: ['pods'], apiGroups: [''], resourceNames: ['x'] }] })];
  const clusterRoles = [object(bindings, 'r', {}, { rules: [{ verbs: ['*'], resources: ['*'], apiGroups: ['*'] }] })];
  const all = [
    binding('user', { kind: 'User', name: 'jane' }, { kind: 'Role', name: 'r' }), binding('group', { kind: 'Group', name: 'dev' }, { kind: 'ClusterRole', name: 'r' }),
    binding('everybody', { kind: 'Group', name: 'system:authenticated' }, { kind: 'Role', name: 'gone' }),
    binding('account', { kind: 'ServiceAccount', namespace: 'n', name: 'a' }, { kind: 'Role', name: 'r' }), binding('accounts', { kind: 'Group', name: 'system:serviceaccounts:n' }, { kind: 'Role', name: 'r' }),
  ];
  const names = (user: string, groups: string[]): string[] => grantsOf({ user, groups }, all, 'rolebindings', roles, clusterRoles).map((g) => g.binding.metadata.name!);
  assert.deepEqual(names('jane', ['dev']), ['user', 'group', 'everybody']);
  assert.deepEqual(names('system:serviceaccount:n:a', []), ['everybody', 'account', 'accounts']);
  assert.deepEqual(names('system:serviceaccount:n:b', []), ['everybody', 'accounts']);
  const [user, group, nobody] = grantsOf({ user: 'jane', groups: ['dev'] }, all, 'rolebindings', roles, clusterRoles);
  const rule = { verbs: ['get'], resources: ['pods'], apiGroups: [''] };
  assert.deepEqual([user, group, nobody].map((g) => gives(g!, { ...rule, resourceNames: ['x'] })), [true, true, false]);
  assert.ok(!gives(user!, { ...rule, resourceNames: ['y'] }) && !gives(user!, { ...rule, verbs: ['get', 'delete'] }));
});
