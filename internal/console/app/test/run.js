// Runs the tests, or those of the modules that are named: `npm test`, `npm test fields yaml`. All run in one process, because the compiler,
// which removes their types, takes longer to load than they take to run. Node 20 has no type stripping.

import { readdirSync } from 'node:fs';
import { register } from 'node:module';

register('./hooks.js', import.meta.url);

const named = process.argv.slice(2);
for (const file of readdirSync(import.meta.dirname)) {
  const name = /^(.*)\.test\.ts$/.exec(file)?.[1];
  if (name && (!named.length || named.includes(name))) await import(`./${file}`);
}
