import assert from 'node:assert/strict';
import { test } from 'node:test';
import { above, ownersByPath, ownersOf, ownersText, pathsOfLines } from '../src/logic/fields';
import { toYAML } from '../src/logic/yaml';
import { random } from './make';

test('managedFields become paths', () => {
  const owners = ownersByPath([
    {
      manager: 'kubectl', operation: 'Apply', time: 't',
      fieldsV1: {
        'f:metadata': { 'f:labels': { '.': {}, 'f:app.kubernetes.io/name': {} }, 'f:finalizers': { 'v:"a/b"': {} } },
        'f:spec': { 'f:containers': { 'k:{"name":"web"}': { '.': {}, 'f:image': {} } }, 'f:ports': { 'k:{"port":80,"protocol":"TCP"}': {} } },
      },
    },
    { manager: 'kubelet', operation: 'Update', subresource: 'status', fieldsV1: { 'f:spec': { 'f:containers': { 'k:{"name":"web"}': { 'f:image': {} } } } } },
  ]);
  assert.deepEqual([...owners.keys()], [
    '.metadata.labels', '.metadata.labels["app.kubernetes.io/name"]', '.metadata.finalizers[="a/b"]', '.spec.containers[name=web]',
    '.spec.containers[name=web].image', '.spec.ports[port=80,protocol=TCP]',
  ]);
  assert.equal(ownersText(owners.get('.spec.containers[name=web].image')!), 'kubectl (Apply), kubelet (Update, status)');
});

test('an element of managedFields that is no JSON stays as it is', () => {
  assert.deepEqual([...ownersByPath([{ fieldsV1: { 'k:{': {}, 'i:3': {}, x: {} } }]).keys()], ['[{]', '[3]', '[]']);
  assert.equal(ownersByPath(undefined).size, 0);
});

test('a field has the owners of the field that it is in', () => {
  const owners = ownersByPath([{ manager: 'm', operation: 'Apply', fieldsV1: { 'f:spec': { 'f:ports': { 'k:{"port":80,"protocol":"TCP"}': { 'f:name': {} } }, 'f:a': {} } } }]);
  const manager = (path: string): string => ownersText(ownersOf(owners, path));
  assert.equal(manager('.spec.a.b[0].c'), 'm (Apply)');
  assert.equal(manager('.spec.ports[port=80].name'), 'm (Apply)', 'the key of the list has a second member');
  assert.equal(manager('.spec.ports[protocol=TCP].name'), 'm (Apply)', 'or a first one');
  assert.equal(manager('.spec.ports[port=8].name'), '');
  assert.equal(manager('.spec.other'), '');
});

test('above', () => {
  for (const [path, want] of [
    ['.spec.containers[name=web].image', '.spec.containers[name=web]'], ['.spec.containers[name=web]', '.spec.containers'],
    ['.metadata.labels["a.b/c]"]', '.metadata.labels'], ['.spec', ''], ['', ''],
  ] as const) {
    assert.equal(above(path), want, path);
  }
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
  assert.equal(at('a.b/c: d'), '.metadata.labels["a.b/c"]');
  assert.equal(at('-v'), '.spec.args[="-v"]');
  assert.equal(at('with a gap'), '.spec.args[="two\\nlines\\n\\nwith a gap"]');
  assert.equal(at('protocol'), '.spec.containers[name=web].ports[containerPort=80].protocol');
  assert.equal(at('env'), '.spec.containers[name=web].env');
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
