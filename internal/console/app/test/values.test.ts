import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at, isMembers, listAt, put, textAt } from '../src/logic/values';

const value = { a: { b: [1], text: 'x', none: null }, list: [] };

test('members are read by path, whatever is there', () => {
  assert.deepEqual([at(value, 'a', 'b'), at(value), at(value, 'a', 'x', 'y'), at(value, 'a', 'b', '0'), at(null, 'a'), at('text', 'length')], [[1], value, undefined, undefined, undefined, undefined]);
  assert.deepEqual([textAt(value, 'a', 'text'), textAt(value, 'a', 'b'), textAt(undefined, 'a')], ['x', '', '']);
  assert.deepEqual([listAt(value, 'a', 'b'), listAt(value, 'a'), listAt(5)], [[1], [], []]);
  assert.deepEqual([{}, [], null, 'x', undefined].map(isMembers), [true, false, false, false, false]);
});

test('members are set by path', () => {
  const o: Record<string, unknown> = { a: null, text: 'x' };
  put(o, ['a', 'b'], 1);
  put(o, ['a', 'c'], 2);
  put(o, ['text', 'd'], 3);
  assert.deepEqual(o, { a: { b: 1, c: 2 }, text: { d: 3 } });
});
