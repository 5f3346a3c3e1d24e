import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fieldsOf, ownersOf, ownersText, pathsOfLines } from '../src/logic/fields';
import { toYAML } from '../src/logic/yaml';
import { random } from './make';

/** leaves returns the paths of the fields that have none below them. */
function leaves(value: unknown, path = ''): string[] {
  const below = fieldsOf(value, path);
  return below.length ? below.flatMap((f) => leaves(f.value, f.path)) : path ? [path] : [];
}

test('paths are those of the server', () => {
  const vectors = JSON.parse(readFileSync(new URL('../../../api/history/testdata/paths.json', import.meta.url), 'utf8')) as { name: string; object: unknown; paths: string[] }[];
  assert.ok(vectors.length > 10);
  for (const { name, object, paths } of vectors) assert.deepEqual(leaves(object).sort(), [...paths].sort(), name);
});

const managed = (fieldsV1: Record<string, unknown>, manager = 'm', operation = 'Apply', subresource = ''): NonNullable<Parameters<typeof ownersOf>[1]>[0] => ({ manager, operation, subresource, fieldsV1 });

test('a field has its managers, or those of the field that it is in', () => {
  const object = {
    metadata: { labels: { 'app.kubernetes.io/name': 'x', other: 'y' }, finalizers: ['b/c', 'a/b'], name: 'p' },
    spec: {
      containers: [{ image: 'first' }, { name: 'web', image: 'second' }], ports: [{ port: 80, protocol: 'UDP' }, { port: 80, protocol: 'TCP', name: 'http' }], atomic: { a: [{ b: 1 }] },
    },
  };
  const owned = ownersOf(object, [
    managed({
      'f:metadata': { 'f:labels': { '.': {}, 'f:app.kubernetes.io/name': {} }, 'f:finalizers': { 'v:"a/b"': {} } },
      'f:spec': {
        'f:containers': { 'k:{"name":"web"}': { '.': {}, 'f:image': {} } }, 'f:ports': { 'k:{"port":80,"protocol":"TCP"}': { 'f:name': {} } }, 'f:atomic': {},
      },
    }),
    managed({ 'f:spec': { 'f:containers': { 'k:{"name":"web"}': { 'f:image': {} }, 'i:0': {} }, 'k:{': {}, x: {} } }, 'kubelet', 'Update', 'status'),
    managed({}, 'nobody'),
  ]);
  const text = (path: string): string => ownersText(owned.get(path) ?? assert.fail(path));
  for (const [path, want] of [
    ['.metadata.labels[app.kubernetes.io/name]', 'm (Apply)'], ['.metadata.labels.other', 'm (Apply)'], ['.metadata.name', ''],
    ['.metadata.finalizers[1]', 'm (Apply)'], ['.metadata.finalizers[0]', ''],
    ['.spec.containers[1].image', 'm (Apply), kubelet (Update, status)'], ['.spec.containers[0].image', 'kubelet (Update, status)'],
    ['.spec.ports[1].name', 'm (Apply)'], ['.spec.ports[0].port', ''], ['.spec.atomic.a[0].b', 'm (Apply)'], ['.spec', ''],
  ] as const) {
    assert.equal(text(path), want, path);
  }
  assert.equal(ownersText(ownersOf(object, undefined).get('.spec.atomic') ?? []), '');
});

test('each line of YAML has the path of its field', () => {
  const object = {
    kind: 'Pod', metadata: { labels: { 'a.b/c': 'd' }, name: 'x' },
    spec: {
      args: ['-v', 'two\nlines\n\nwith a gap'], containers: [{ name: 'web', ports: [{ containerPort: 80, protocol: 'TCP' }], env: [] }, { image: 'y' }], empty: {}, none: null,
    },
  };
  const yaml = toYAML(object);
  const paths = pathsOfLines(object, yaml);
  const at = (text: string): string | undefined => paths[yaml.split('\n').findIndex((line) => line.includes(text))];
  assert.equal(at('a.b/c: d'), '.metadata.labels[a.b/c]');
  assert.equal(at('-v'), '.spec.args[0]');
  assert.equal(at('with a gap'), '.spec.args[1]');
  assert.equal(at('protocol'), '.spec.containers[0].ports[0].protocol');
  assert.equal(at('env'), '.spec.containers[0].env');
  assert.equal(at('image'), '.spec.containers[1].image');
  assert.equal(at('empty'), '.spec.empty');
  assert.equal(at('none'), '.spec.none');
});

/** slow finds the paths of lines without a walk: each scalar has a text that is nowhere else. */
function slow(value: unknown, path: string, at: (text: string) => number, found: string[]): void {
  if (Array.isArray(value)) value.forEach((v, i) => slow(v, `${path}[${i}]`, at, found));
  else if (value && typeof value === 'object') for (const [k, v] of Object.entries(value)) slow(v, `${path}.${k}`, at, found);
  else found[at(String(value))] = path;
}

test('the paths of lines are right for random objects', () => {
  const next = random(1);
  let texts = 0;
  const make = (depth: number): unknown => {
    const kind = depth > 4 ? 0 : next(3);
    if (kind === 0) return [`only-${texts++}-${next(2) ? '' : 'line\n\n  more\nlast'}`][0];
    const n = 1 + next(4);
    // A list of lists has no names for its elements, and neither has Kubernetes such lists.
    if (kind === 1) return Array.from({ length: n }, () => ({ [`m${next(1000)}`]: make(depth + 1) }));
    return Object.fromEntries(Array.from({ length: n }, (_, i) => [`f${i}x${next(100)}`, make(depth + 1)]));
  };
  for (let run = 0; run < 300; run++) {
    const object = { a: make(0), b: make(0) };
    const yaml = toYAML(object);
    const lines = yaml.split('\n');
    const paths = pathsOfLines(object, yaml);
    const want: string[] = [];
    const number = (text: string): string => /only-\d+-/.exec(text)![0];
    slow(object, '', (text) => lines.findIndex((line) => line.includes(number(text))), want);
    // The text of several lines begins on the line after its field.
    want.forEach((path, line) => assert.equal(paths[line], path, `run ${run}, line ${line}\n${yaml}`));
  }
});
