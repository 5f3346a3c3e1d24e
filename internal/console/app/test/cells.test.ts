import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AGO, durationOf, isSince, sinceOf, sortKey } from '../src/logic/cells';
import { age, bytes, local, seconds, textOf } from '../src/logic/format';
import { conditionsOf, conditionTone, isFailing, toneOf } from '../src/logic/status';
import type { Row } from '../src/logic/tables';
import { object, PODS } from './make';

const column = (name: string, type = 'string'): { name: string; type: string } => ({ name, type });

test('durations', () => {
  for (const [text, want] of [
    ['5s', 5], ['5m30s', 330], ['3d4h', 273_600], ['2y10d', 2 * 31_536_000 + 864_000], ['', undefined], ['5', undefined], ['x5s', undefined],
    ['99999y', undefined], ['5s5m', undefined],
  ] as const) {
    assert.equal(durationOf(text), want, text);
  }
});

test('which durations grow', () => {
  for (const c of [column('Age'), column('Last Seen'), column('FIRST SCHEDULED'), column('x', 'date')]) assert.ok(isSince(c), c.name);
  for (const c of [column('Duration'), column('Storage'), column('Lastname')]) assert.ok(!isSince(c), c.name);
  assert.equal(sinceOf(column('Age'), '5m', 1_000_000), 700_000);
  assert.equal(sinceOf(column('Duration'), '5m', 1_000_000), undefined);
  assert.equal(AGO.exec('3 (5m30s ago)')?.[1], '5m30s');
});

test('cells are sorted by their value', () => {
  const sorted = (c: { name: string; type: string }, cells: unknown[]): unknown[] =>
    cells.map((cell) => [sortKey(c, cell, 1e12), cell] as const).sort(([a], [b]) => Number(a) - Number(b)).map(([, cell]) => cell);
  assert.deepEqual(sorted(column('Capacity'), ['1Gi', '900Mi', '2G', '5k', '100m']), ['100m', '5k', '900Mi', '1Gi', '2G']);
  assert.deepEqual(sorted(column('Age'), ['5m', '2d', '30s']), ['30s', '5m', '2d']);
  assert.deepEqual(sorted(column('Duration'), ['5m', '2h', '30s']), ['30s', '5m', '2h']);
  assert.deepEqual(sorted(column('Restarts'), ['10 (5m ago)', '2', '0']), ['0', '2', '10 (5m ago)']);
  assert.deepEqual(sorted(column('At'), ['2024-01-02T00:00:00Z', '2023-12-31T23:00:00-05:00', '2024-01-01T00:00:00Z']), [
    '2024-01-01T00:00:00Z', '2023-12-31T23:00:00-05:00', '2024-01-02T00:00:00Z',
  ]);
  assert.equal(sortKey(column('Time'), '5m', 0), 300, 'a column of times has minutes');
  assert.equal(sortKey(column('CPU'), '5m', 0), 0.005, 'another one has thousandths');
  for (const none of ['', '<none>', '<unknown>', null, undefined]) assert.equal(sortKey(column('X'), none, 0), undefined);
  for (const text of ['web-1', '1x', '5Q']) assert.equal(sortKey(column('X'), text, 0), text);
  assert.equal(sortKey(column('X'), 7, 0), 7);
});

test('ages are written as kubectl writes them', () => {
  const now = Date.parse('2024-06-01T00:00:00Z');
  const ago = (s: number): string => age(new Date(now - 1000 * s).toISOString(), now);
  for (const [s, want] of [
    [0, '0s'], [-5, '0s'], [119, '119s'], [120, '2m'], [7199, '119m'], [7200, '2h'], [172_799, '47h'], [172_800, '2d'], [730 * 86_400, '2y'],
  ] as const) {
    assert.equal(ago(s), want, String(s));
  }
  assert.equal(age(undefined), '');
  assert.equal(age('not a time'), '');
  assert.equal(local('not a time'), 'not a time');
  assert.equal(local(undefined), '');
});

test('sizes, seconds and values', () => {
  assert.deepEqual([0, 1023, 1024, 1536, 150 * 1024, 3 * 2 ** 50].map(bytes), ['0 B', '1023 B', '1.0 KiB', '1.5 KiB', '150 KiB', '3072 TiB']);
  assert.deepEqual([0.0005, 0.005, 0.25, 2, 90, NaN].map(seconds), ['500 µs', '5.0 ms', '250 ms', '2.0 s', '90 s', '']);
  assert.deepEqual([null, undefined, 0, false, 'a', { a: 1 }, Object.create(null)].map(textOf), ['', '', '0', 'false', 'a', '{"a":1}', '{}']);
});

test('words of a status', () => {
  for (const [text, tone] of [
    ['Running', 'good'], ['CrashLoopBackOff', 'bad'], ['ImagePullBackOff', 'bad'], ['NotReady', 'bad'], ['Pending', 'warn'], ['Terminating', 'warn'],
    ['Approved,Issued', 'good'], ['Anything', undefined],
  ] as const) {
    assert.equal(toneOf(text), tone, text);
  }
});

test('what is failing', () => {
  const row = (cells: Row['cells'], deletionTimestamp = ''): Row => ({
    key: '', namespace: '', name: '', cells, object: { metadata: { deletionTimestamp } }, at: 0, changed: 0,
  });
  const pods = [{ name: 'Name' }, { name: 'Ready' }, { name: 'Status' }];
  assert.ok(!isFailing(row(['a', '1/1', 'Running']), pods));
  assert.ok(isFailing(row(['a', '0/1', 'Running']), pods));
  assert.ok(!isFailing(row(['a', '0/1', 'Completed']), pods));
  assert.ok(isFailing(row(['a', '1/1', 'Error']), pods));
  assert.ok(isFailing(row(['a', '1/1', 'Running'], '2024-01-01T00:00:00Z'), pods));
  assert.ok(isFailing(row(['Warning']), [{ name: 'Type' }]));
  assert.ok(!isFailing(row(['Error']), [{ name: 'Type' }]), 'a type is no status');
  assert.ok(isFailing(row(['False (MissingEndpoints)']), [{ name: 'Available' }]));
});

test('conditions', () => {
  const tone = (type: string, status: string): string => conditionTone({ type, status });
  assert.deepEqual([tone('Ready', 'True'), tone('Ready', 'False'), tone('Ready', 'Unknown')], ['good', 'bad', 'warn']);
  assert.deepEqual([tone('MemoryPressure', 'True'), tone('MemoryPressure', 'False')], ['bad', 'good']);
  assert.deepEqual(conditionsOf(object(PODS, 'x', {}, { status: { conditions: [null, { type: 'Ready' }, 'x'] } })), [{ type: 'Ready' }]);
  for (const status of [undefined, null, { conditions: 'x' }]) assert.deepEqual(conditionsOf(object(PODS, 'x', {}, { status })), []);
});
