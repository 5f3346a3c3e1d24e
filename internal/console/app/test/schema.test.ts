import assert from 'node:assert/strict';
import { test } from 'node:test';
import { referencesOf } from '../src/logic/references';
import { convert, limits, simpleFields, typeOf } from '../src/logic/schema';
import { columnsOf, rowsOf, versionOf } from '../src/logic/tables';
import { discovery, object, owner, candidate, PODS, DEPLOYMENTS } from './make';

test('types and limits as text', () => {
  assert.equal(typeOf({ type: 'array', items: { type: 'object', additionalProperties: { type: 'string', format: 'byte' } } }), 'list of map of string (byte)');
  assert.equal(typeOf({ 'x-kubernetes-int-or-string': true }), 'integer or string');
  assert.equal(typeOf({ type: 'array' }), 'list of anything');
  assert.deepEqual(limits({ enum: ['a', 1], default: { x: 1 }, minimum: 0, maximum: 9, minLength: 1, maxLength: 2, maxItems: 3, pattern: '^a', nullable: true }), [
    'one of a, 1', 'default {"x":1}', 'at least 0', 'at most 9', 'at least 1 characters', 'at most 2 characters', 'at most 3', 'matches ^a', 'may be null',
  ]);
  assert.deepEqual(limits({}), []);
});

test('the fields of a form', () => {
  const fields = simpleFields({
    required: ['spec'],
    properties: {
      kind: { type: 'string' }, status: { type: 'string' }, note: { type: 'string' },
      spec: {
        required: ['size', 'deep'],
        properties: {
          size: { type: 'integer' }, names: { type: 'array', items: { type: 'string' } }, objects: { type: 'array', items: { type: 'object' } },
          deep: { properties: { flag: { type: 'boolean' } } }, constructor: { type: 'string' }, port: { 'x-kubernetes-int-or-string': true },
        },
      },
    },
  });
  assert.deepEqual(fields.map((f) => [f.path.join('.'), f.required]), [
    ['note', false], ['spec.size', true], ['spec.names', false], ['spec.deep.flag', false], ['spec.port', false],
  ]);
});

test('the text of a field becomes its value', () => {
  const port = { 'x-kubernetes-int-or-string': true };
  assert.deepEqual([convert({ type: 'integer' }, '5'), convert({ type: 'boolean' }, 'true'), convert({ type: 'string' }, '5'), convert(port, '80'), convert(port, 'http')], [5, true, '5', 80, 'http']);
  assert.deepEqual(convert({ type: 'array', items: { type: 'integer' } }, '1, 2'), [1, 2]);
  assert.deepEqual(convert({ type: 'array', items: { type: 'string' } }, 'a,, b '), ['a', 'b']);
});

test('references', () => {
  const deployment = candidate(DEPLOYMENTS, 'web');
  const pod = object(PODS, 'p', { ownerReferences: [owner(deployment)] }, {
    spec: {
      serviceAccountName: 'sa', nodeName: 'n1', imagePullSecrets: [{ name: 'pull' }],
      volumes: [{ configMap: { name: 'cm' } }, { secret: { secretName: 's' } }, { persistentVolumeClaim: { claimName: 'pvc' } }],
      containers: [{ envFrom: [{ configMapRef: { name: 'cm' } }] }], scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'target' },
    },
    subjects: [{ kind: 'ServiceAccount', name: 'other', namespace: 'elsewhere' }],
  });
  assert.deepEqual(referencesOf(pod, discovery).map((r) => `${r.href} ${r.where}`), [
    '#/o/serviceaccounts/default/sa .spec.serviceAccountName', '#/o/nodes/-/n1 .spec.nodeName', '#/o/secrets/default/pull .spec.imagePullSecrets',
    '#/o/configmaps/default/cm .spec.volumes[0].configMap', '#/o/secrets/default/s .spec.volumes[1].secret',
    '#/o/persistentvolumeclaims/default/pvc .spec.volumes[2].persistentVolumeClaim.claimName',
    '#/o/deployments.apps/default/target .spec.scaleTargetRef', '#/o/serviceaccounts/elsewhere/other .subjects[0]', '#/o/deployments.apps/default/web .metadata.ownerReferences',
  ]);
  assert.deepEqual(referencesOf(object(PODS, 'p', {}, { spec: { serviceAccountName: 5, secret: null, volumes: 'x' } }), discovery), []);
});

const TABLE = {
  kind: 'Table', metadata: { resourceVersion: '9' },
  columnDefinitions: [{ name: 'Name', type: 'string', priority: 0 }, { name: 'x'.repeat(2000) }, null],
  rows: [{ cells: ['a', null, { b: 1 }, 'y'.repeat(2000), 5], object: { metadata: { name: 'a', namespace: 'n', creationTimestamp: 't', resourceVersion: '7' } } }, null],
};

test('a Table', () => {
  assert.deepEqual(columnsOf(TABLE).map((c) => [c.name.length, c.type, c.priority]), [[4, 'string', 0], [1002, '', 0], [0, '', 0]]);
  const [row, ...rest] = rowsOf(TABLE, 3);
  assert.equal(rest.length, 0);
  assert.deepEqual({ ...row, at: 0, cells: row!.cells.map((c) => String(c).slice(0, 7)) }, {
    key: 'n/a', namespace: 'n', name: 'a', cells: ['a', 'null', '{"b":1}', 'yyyyyyy', '5'], at: 0, changed: 3, object: { metadata: { creationTimestamp: 't', deletionTimestamp: '' } },
  });
  assert.equal(versionOf(TABLE), '7');
  assert.equal(versionOf({ kind: 'Table', metadata: { resourceVersion: '9' } }), '9');
});

test('what is no Table is shown by name', () => {
  const list = { items: [{ metadata: { name: 'a' } }, null] };
  assert.deepEqual(columnsOf(list).map((c) => c.name), ['Name', 'Age']);
  assert.deepEqual(rowsOf(list, 0).map((r) => r.key), ['/a', '/']);
  assert.deepEqual(rowsOf({ kind: 'Pod', metadata: { name: 'p', namespace: 'n' } }, 0).map((r) => r.key), ['n/p']);
  assert.deepEqual([rowsOf({}, 0), columnsOf({}), rowsOf({ kind: 'Table', rows: 'x', items: 5 }, 0)], [[], [], []]);
});
