import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { RowOrder, type Choice, type RowSet } from '../src/logic/roworder';
import type { Row } from '../src/logic/tables';
import { random } from './make';

const row = (name: string, cell: string | number | null): Row => ({
  key: `default/${name}`, namespace: 'default', name, cells: [cell], object: { metadata: {} }, at: 0, changed: 0,
});
const setOf = (...rows: Row[]): RowSet => ({ rows: new Map(rows.map((r) => [r.key, r])), generation: 0, membership: 0 });
const by = (r: Row): unknown => r.cells[0] ?? undefined;
const all: Choice = { text: '', down: false, key: '' };
const names = (rows: Row[]): string => rows.map((r) => r.name).join(' ');

test('rows without a value are the last ones in both directions', () => {
  const set = setOf(row('a', 3), row('b', null), row('c', 1), row('d', 'text'));
  assert.equal(names(new RowOrder(() => {}).rows(set, { ...all, by, key: 'up' })), 'c a d b');
  assert.equal(names(new RowOrder(() => {}).rows(set, { ...all, by, key: 'down', down: true })), 'd a c b');
});

test('text is in the name or the namespace', () => {
  const set = setOf(row('web-1', 1), row('Web-2', 2), row('db', 3));
  const order = new RowOrder(() => {});
  assert.equal(names(order.rows(set, { ...all, text: 'web' })), 'web-1 Web-2');
  assert.equal(names(order.rows(set, { ...all, text: 'defau' })), 'web-1 Web-2 db');
  assert.equal(names(order.rows(set, all)), 'web-1 Web-2 db');
  assert.deepEqual(order.rows(null, all), []);
});

test('many rows are sorted again only after a pause', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  let now = 1000;
  mock.method(performance, 'now', () => now);
  let asked = 0;
  const order = new RowOrder(() => asked++);
  const set = setOf(...Array.from({ length: 600 }, (_, i) => row(`n${i}`, i)));
  const choice = { ...all, by, key: 'up' };
  const first = order.rows(set, choice);
  set.rows.get('default/n0')!.cells = [1e6];
  set.generation++;
  assert.equal(order.rows(set, choice), first, 'the order before');
  mock.timers.tick(250);
  assert.equal(asked, 1);
  now += 250;
  assert.equal(order.rows(set, choice).at(-1)!.name, 'n0');
  order.close();
  mock.reset();
});

test('the order is that of a full sort, whatever changes', () => {
  const next = random(7);
  const set = setOf();
  const order = new RowOrder(() => {});
  const only = (r: Row): boolean => r.cells[0] !== 0;
  for (let step = 0; step < 3000; step++) {
    const name = `n${next(60)}`;
    const known = set.rows.get(`default/${name}`);
    if (known && next(3) === 0) {
      set.rows.delete(known.key);
      set.membership++;
    } else if (known) known.cells = [next(9)];
    else {
      set.rows.set(`default/${name}`, row(name, next(9)));
      set.membership++;
    }
    set.generation++;
    const choice = { ...all, text: next(4) ? '' : '1', only: next(2) ? only : undefined, by: next(2) ? by : undefined, down: next(2) === 1 };
    choice.key = JSON.stringify([!!choice.only, !!choice.by, choice.down]);
    const want = [...set.rows.values()].filter((r) => r.name.includes(choice.text) && (!choice.only || only(r)));
    const sign = choice.down ? -1 : 1;
    const collator = new Intl.Collator(undefined, { numeric: true });
    if (choice.by) want.sort((a, b) => sign * (Number(a.cells[0]) - Number(b.cells[0]) || collator.compare(a.key, b.key)));
    assert.equal(names(order.rows(set, choice)), names(want), `step ${step}`);
  }
});
