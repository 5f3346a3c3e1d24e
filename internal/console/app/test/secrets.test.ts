import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../src/logic/kubernetes';
import { decoded, hidden, hiddenPair, isSecret, restored } from '../src/logic/secrets';
import { toYAML } from '../src/logic/yaml';
import { object, PODS, SECRETS } from './make';

const APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';
const secret = (data: Record<string, string>, applied = 'applied: c2VjcmV0'): KubeObject =>
  object(SECRETS, 's', { annotations: { [APPLIED]: applied, other: 'shown' } }, { data, stringData: { text: 'plain' } });

test('no value of a Secret is in what is shown', () => {
  const o = secret({ a: 'c2VjcmV0', b: 'b3RoZXI=' });
  const text = toYAML(hidden(o));
  for (const value of ['c2VjcmV0', 'b3RoZXI=', 'plain']) assert.ok(!text.includes(value), value);
  assert.match(text, /other: shown/);
  assert.equal((o.data as Record<string, string>).a, 'c2VjcmV0', 'the object itself stays as it was');
});

test('other kinds stay the same object', () => {
  for (const o of [object(PODS, 'p', {}, { data: { a: 'b' } }), { ...secret({}), apiVersion: 'example.com/v1' }]) {
    assert.ok(!isSecret(o));
    assert.equal(hidden(o), o);
  }
});

test('data that is no map is hidden as one value', () => {
  for (const data of ['text', ['a'], 5]) assert.equal(hidden(object(SECRETS, 's', {}, { data })).data, '***');
  assert.equal(hidden(object(SECRETS, 's', {}, { data: null })).data, null);
});

test('a comparison says whether values differ', () => {
  const [before, after] = hiddenPair(secret({ same: 'x', other: 'y', gone: 'z' }), secret({ same: 'x', other: 'n', come: 'c' }));
  assert.deepEqual(before.data, { same: '***', other: '*** (before)', gone: '***' });
  assert.deepEqual(after.data, { same: '***', other: '*** (after)', come: '***' });
  assert.equal(before.metadata.annotations?.[APPLIED], '***');
});

test('an edit keeps the values that are hidden', () => {
  const base = secret({ a: 'x', b: 'y' });
  const edited = hidden(base);
  edited.data = { ...(edited.data as object), b: 'bmV3' };
  const back = restored(edited, base);
  assert.deepEqual(back.data, { a: 'x', b: 'bmV3' });
  assert.equal(back.metadata.annotations?.[APPLIED], 'applied: c2VjcmV0');
  assert.equal((restored({ ...edited, stringData: { text: '***' } }, base).stringData as Record<string, string>).text, '***', 'a server returns none');
  edited.data = { renamed: '***' };
  assert.throws(() => restored(edited, base), /the value of renamed is hidden/);
});

test('decoded', () => {
  assert.deepEqual(decoded('Z3LDvG4='), { text: 'grün', bytes: 5 });
  assert.deepEqual(decoded('/w=='), { text: '/w== (base64)', bytes: 1 });
  assert.deepEqual(decoded('***'), { text: '*** (base64)', bytes: 0 });
});
