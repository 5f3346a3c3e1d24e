import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changesOf, deletedObjects, how, who, type Change } from '../src/logic/changes';
import { aboutOf, grouped, timeOf, type KubeEvent } from '../src/logic/events';

const change = (name: string, over: Partial<Change> = {}): Change => ({ type: 'Updated', resourceVersion: '1', resource: 'pods', namespace: 'default', name, ...over });

test('who and how', () => {
  assert.equal(who(change('a', { user: 'jane' })), 'jane');
  assert.equal(who(change('a', { user: 'jane', impersonator: 'admin' })), 'jane (by admin)');
  assert.equal(who(change('a')), '');
  assert.equal(how(change('a', { verb: 'patch', subresource: 'status' })), 'patch status');
  assert.equal(how(change('a', { verb: 'create' })), 'create');
});

test('each object that was deleted is there once', () => {
  const deleted = (name: string, over: Partial<Change> = {}): Change => change(name, { type: 'Deleted', ...over });
  const found = deletedObjects([deleted('a', { resourceVersion: '9' }), change('b'), deleted('a'), deleted('a', { namespace: 'other' }), deleted('a', { group: 'x.com' })]);
  assert.deepEqual(found.map((c) => [c.group ?? '', c.namespace, c.resourceVersion]), [['', 'default', '1'], ['', 'other', '1'], ['x.com', 'default', '1']]);
});

test('a field has the change that gave it its value', () => {
  const [newest, created] = [change('a', { resourceVersion: '9' }), change('a', { resourceVersion: '5' })];
  const found = changesOf({
    changes: [newest, created],
    fields: [{ path: '.data[a.b]', resourceVersion: '9' }, { path: '.data.c', resourceVersion: '5' }, { path: '.data.older' }],
  });
  assert.deepEqual([...found], [['.data[a.b]', newest], ['.data.c', created]]);
});

test('Events that say the same of a kind are one line', () => {
  const event = (name: string, lastTimestamp: string, over: Partial<KubeEvent> = {}): KubeEvent => ({
    metadata: {}, involvedObject: { kind: 'Pod', namespace: 'default', name }, reason: 'BackOff', message: 'm', lastTimestamp, ...over,
  });
  const [first, second, ...rest] = grouped([
    event('a', '2024-01-01T00:00:00Z', { count: 3 }), event('b', '2024-01-03T00:00:00Z'), event('a', '2024-01-02T00:00:00Z', { series: { count: 5 } }),
    event('a', '2024-01-04T00:00:00Z', { message: 'other' }),
  ]);
  assert.equal(rest.length, 0);
  assert.deepEqual([first!.count, first!.objects.size], [1, 1]);
  assert.deepEqual([second!.count, second!.objects.size, timeOf(second!.newest)], [9, 2, '2024-01-03T00:00:00Z']);
  const modern: KubeEvent = { metadata: {}, regarding: { kind: 'Node' }, note: 'm', eventTime: 't', series: { lastObservedTime: 'later' } };
  assert.equal(timeOf(modern), 'later');
  assert.equal(aboutOf(modern).kind, 'Node');
  assert.equal(grouped([modern, { ...modern, note: 'n' }]).length, 2);
});
