import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkNumbers, comparable, documents, oneDocument, roundedNumber, toYAML, withoutManagedFields } from '../src/logic/yaml';
import { object, PODS } from './make';

const valueOf = (text: string): unknown => oneDocument(`kind: X\nvalue: ${text}\n`).value;

test('scalars are read as kubectl reads them', () => {
  for (const [text, want] of [
    ['0644', 420], ['-017', -15], ['08', 8], ['0x1f', 31], ['1e3', 1000], ['yes', true], ['off', false], ['~', null], ['1:30', '1:30'],
    ['2024-01-02', '2024-01-02'], ['2024-01-02T03:04:05Z', '2024-01-02T03:04:05Z'], ["'yes'", 'yes'], ['1.5', 1.5],
  ] as const) {
    assert.deepEqual(valueOf(text), want, text);
  }
});

test('<< merges mappings', () => {
  assert.deepEqual(oneDocument('kind: X\nbase: &b {a: 1, c: 2}\nspec:\n  <<: *b\n  c: 3\n').spec, { a: 1, c: 3 });
});

test('documents are separated, and lists taken apart', () => {
  const all = documents('kind: A\n---\n# nothing\n---\nkind: PodList\nitems: [{kind: Pod}, {kind: Pod, metadata: {name: x}}]\n');
  assert.deepEqual(all.map((o) => [o.kind, o.metadata.name]), [['A', undefined], ['Pod', undefined], ['Pod', 'x']]);
  assert.deepEqual(documents('{"kind": "A", "metadata": {"name": "json"}}').map((o) => o.metadata.name), ['json']);
  assert.deepEqual(documents(''), []);
  assert.throws(() => documents('just text'), /not an object/);
  assert.throws(() => documents('- a\n'), /not an object/);
  assert.throws(() => oneDocument('kind: A\n---\nkind: B\n'), /one document, not 2/);
});

test('aliases of aliases are not written out', () => {
  let text = 'a0: &a0 [xxxxxxxxxx, xxxxxxxxxx]\n';
  for (let i = 1; i < 25; i++) text += `a${i}: &a${i} [*a${i - 1}, *a${i - 1}]\n`;
  const began = performance.now();
  assert.throws(() => documents(text), /larger than 16 MiB/);
  assert.ok(performance.now() - began < 2000);
  assert.throws(() => documents('a: &a\n  b: *a\n'), /inside|identified/);
});

test('whole numbers that JavaScript rounds are refused', () => {
  assert.throws(() => documents('kind: A\nspec: {n: [9007199254740993]}\n'), /above 2\^53/);
  assert.doesNotThrow(() => checkNumbers({ n: 9007199254740991, f: 1.5e300 * 0 + 0.5, t: '9007199254740993' }));
  assert.match(roundedNumber({ a: { b: 2 ** 60 } }), /above 2\^53/);
  assert.equal(roundedNumber({ a: 1 }), '');
});

test('what is shown and compared leaves out what nobody reads', () => {
  const o = object(PODS, 'x', { managedFields: [{ manager: 'm' }], resourceVersion: '5' });
  assert.deepEqual(withoutManagedFields(o).metadata, { name: 'x', uid: 'uid-x', namespace: 'default', resourceVersion: '5' });
  assert.deepEqual(comparable(o).metadata, { name: 'x', uid: 'uid-x', namespace: 'default' });
  assert.ok(o.metadata.managedFields, 'the object itself stays as it was');
  const shared = { a: 1 };
  assert.equal(toYAML({ x: shared, y: shared, long: 'word '.repeat(60).trim() }).split('\n').length, 6, 'no anchors, no folded lines');
});
