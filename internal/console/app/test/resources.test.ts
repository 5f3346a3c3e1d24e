import assert from 'node:assert/strict';
import { test } from 'node:test';
import { link, objectLink, parse, query } from '../src/logic/links';
import { apiVersionOf, discoveryOf, findByKey, findByKind, hasVerb, keyOf, listPath, objectPath, type APIGroup } from '../src/logic/resources';
import { bestOf } from '../src/logic/targets';
import { DEPLOYMENTS, discovery, NAMESPACES, PODS } from './make';

const apps = (): APIGroup => ({
  metadata: { name: 'apps' },
  versions: [
    {
      version: 'v1',
      resources: [
        { resource: 'deployments', responseKind: { kind: 'Deployment' }, scope: 'Namespaced', verbs: ['get', 'list'], shortNames: ['deploy'], subresources: [{ subresource: 'scale', verbs: ['get'] }, { subresource: 'status' }] },
        { resource: 'reviews', responseKind: { kind: 'Review' }, verbs: [] }, { resource: 'nothing' },
      ],
    },
    { version: 'v1beta1', freshness: 'Stale', resources: [{ resource: 'deployments', responseKind: { kind: 'Deployment' }, verbs: ['get'] }, { resource: 'old', responseKind: { kind: 'Old' }, verbs: ['get'] }] },
  ],
});

test('discovery', () => {
  const d = discoveryOf([{ versions: [{ version: 'v1', resources: [{ resource: 'nodes', responseKind: { kind: 'Node' }, scope: 'Cluster', verbs: ['list'] }] }] }, apps(), {}]);
  assert.deepEqual(d.resources.map((r) => [keyOf(r), apiVersionOf(r), r.namespaced, r.otherVersions]), [
    ['nodes', 'v1', false, []], ['deployments.apps', 'apps/v1', true, ['v1beta1']], ['old.apps', 'apps/v1beta1', false, []],
  ]);
  assert.deepEqual([...d.resources[1]!.subresources], [['scale', ['get']], ['status', []]]);
  assert.deepEqual(d.stale, ['v1beta1.apps']);
});

test('resources that are as before are the same objects', () => {
  const before = discoveryOf([apps()]);
  const changed = apps();
  changed.versions![0]!.resources![0]!.verbs!.push('watch');
  const after = discoveryOf([changed], before);
  assert.notEqual(after.resources[0], before.resources[0]);
  assert.equal(after.resources[1], before.resources[1]);
});

test('resources are found by key and by kind', () => {
  const d = discoveryOf([apps()]);
  assert.equal(findByKey(d, 'deployments.apps')?.kind, 'Deployment');
  assert.equal(findByKey(d, 'deployments'), undefined);
  assert.equal(findByKind(d, 'apps/v1', 'Deployment'), d.resources[0]);
  assert.equal(findByKind(d, 'apps/v1beta1', 'Deployment')?.version, 'v1beta1');
  assert.equal(findByKind(d, 'apps/v9', 'Deployment'), d.resources[0], 'a version that is not served');
  assert.equal(findByKind(d, 'v1', 'Deployment'), undefined);
  assert.ok(hasVerb(PODS, 'list') && !hasVerb(PODS, 'proxy'));
});

test('paths of the API', () => {
  assert.equal(listPath(PODS), '/api/v1/pods');
  assert.equal(listPath(DEPLOYMENTS, 'a b'), '/apis/apps/v1/namespaces/a%20b/deployments');
  assert.equal(listPath(NAMESPACES, 'x'), '/api/v1/namespaces', 'it is in no namespace');
  assert.equal(objectPath(DEPLOYMENTS, 'x', 'a/../b', 'scale'), '/apis/apps/v1/namespaces/x/deployments/a%2F..%2Fb/scale');
  assert.equal(objectPath(PODS, 'x', '\ud800'), '/api/v1/namespaces/x/pods/%EF%BF%BD');
  for (const name of ['.', '..']) assert.throws(() => objectPath(PODS, 'x', name), /is not a name/);
});

test('parameters', () => {
  assert.equal(query({ a: 'b c', none: undefined, empty: '', no: false, yes: true, n: 0 }), '?a=b+c&yes=true&n=0');
  assert.equal(query({ a: '' }), '');
});

test('addresses of views', () => {
  assert.equal(objectLink(PODS, '', 'a/b?c#d'), '#/o/pods/-/a%2Fb%3Fc%23d');
  assert.equal(objectLink(DEPLOYMENTS, 'x', 'y', 'yaml'), '#/o/deployments.apps/x/y/yaml');
  const at = parse(link(['o', 'pods', 'ns', 'ä/?#%'], { q: 'a&b=c', none: undefined }));
  assert.deepEqual(at.path, ['o', 'pods', 'ns', 'ä/?#%']);
  assert.deepEqual([...at.params], [['q', 'a&b=c']]);
  assert.deepEqual(parse('#/%zz/x').path, ['%zz', 'x'], 'what is no encoding stays');
  assert.deepEqual(parse('').path, []);
  assert.deepEqual([...parse('#/x?a=1?b').params], [['a', '1?b']]);
});

test('the palette finds a word before a beginning before a part', () => {
  const targets = discovery.resources.map((r) => ({ text: r.kind, detail: '', href: '', words: [r.plural, r.kind === 'Pod' ? 'po' : ''].join(' ') }));
  assert.deepEqual(bestOf(targets, ' PO ').map((t) => t.text), ['Pod']);
  assert.deepEqual(bestOf([{ text: 'c', detail: '', href: '', words: 'xpo' }, { text: 'b', detail: '', href: '', words: 'pods' }, { text: 'a', detail: '', href: '', words: 'po' }], 'po').map((t) => t.text), ['a', 'b', 'c']);
  assert.equal(bestOf([...targets, ...targets], '').length, 12);
});
