// Which folder may import which, and that no modules import each other in a circle.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { test } from 'node:test';

/** A folder may import itself and those before it. What is in none of them, the frame of the page, may import all. */
const LAYERS = ['logic', 'client', 'parts', 'pages'];

/** Packages of npm that a folder may import: logic has nothing that needs a document. */
const PACKAGES: Record<string, RegExp> = { logic: /^js-yaml$/, client: /^$/, parts: /./, pages: /^preact/, '': /^preact/ };

const ROOT = join(import.meta.dirname, '..', 'src');
const modules = new Map(
  readdirSync(ROOT, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name))
    .map((name) => [name.replace(/\.tsx?$/, ''), readFileSync(join(ROOT, name), 'utf8')]),
);
const layerOf = (name: string): string => (name.includes('/') ? name.slice(0, name.indexOf('/')) : '');
const importsOf = (text: string): string[] => [...text.matchAll(/(?:from|import\() ?'([^']+)'/g)].map((m) => m[1]!);
const targetOf = (name: string, specifier: string): string => relative('.', normalize(join(dirname(name), specifier)));

test('a folder imports itself and those below it', () => {
  assert.ok(modules.size > 40, 'the modules were not found');
  for (const [name, text] of modules) {
    const from = layerOf(name);
    for (const specifier of importsOf(text)) {
      if (!specifier.startsWith('.')) {
        assert.match(specifier, PACKAGES[from]!, `${name} imports the package ${specifier}`);
        continue;
      }
      const target = targetOf(name, specifier);
      assert.ok(modules.has(target), `${name} imports ${specifier}, which does not exist`);
      if (from) assert.ok(LAYERS.indexOf(layerOf(target)) <= LAYERS.indexOf(from) && layerOf(target), `${name} imports ${target}`);
    }
  }
});

test('a module begins with a line that says what it has', () => {
  for (const [name, text] of modules) assert.match(text, /^\/\/ [^\n]{15,}\n/, name);
});

test('no modules import each other in a circle', () => {
  const done = new Set<string>();
  const visit = (name: string, above: string[]): void => {
    assert.ok(!above.includes(name), `a circle: ${[...above, name].join(' -> ')}`);
    if (done.has(name)) return;
    for (const specifier of importsOf(modules.get(name)!)) {
      if (specifier.startsWith('.')) visit(targetOf(name, specifier), [...above, name]);
    }
    done.add(name);
  };
  for (const name of modules.keys()) visit(name, []);
});
