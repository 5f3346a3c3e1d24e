// Objects as YAML: what is shown, and what is sent.

import { boolYaml11Tag, dump, FAILSAFE_SCHEMA, floatCoreTag, intCoreTag, loadAll, mergeTag, nullCoreTag, Schema } from 'js-yaml';
import { messageOf, type KubeObject } from './kubernetes';
import { isMembers, textAt } from './values';

/** A document longer than this is not shown as YAML with its decorations. */
export const MAX_YAML = 3 << 20;

export function toYAML(object: unknown): string {
  return dump(object, { lineWidth: -1, noRefs: true });
}

/** withoutManagedFields returns an object without the part that nobody reads. */
export function withoutManagedFields<T extends { metadata?: { managedFields?: unknown } }>(object: T): T {
  if (!object.metadata?.managedFields) return object;
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/** schema reads scalars as kubectl does: 0644 is octal, yes and on are booleans, << merges mappings. 1:30 and times are text. */
const schema = new Schema([
  ...FAILSAFE_SCHEMA.tags, nullCoreTag, boolYaml11Tag,
  {
    ...intCoreTag,
    resolve: (source, explicit, tag) => /^[-+]?0[0-7]+$/.test(source) ? parseInt(source, 8) : intCoreTag.resolve(source, explicit, tag),
  },
  floatCoreTag, mergeTag, // what floatCoreTag matches includes integers
]);

/** An object larger than this is not sent: API servers accept 3 MiB. */
const MAX_OBJECT = 16 << 20;

/**
 * checkSize throws an error if a value is too large when its aliases are written out, as in JSON. Aliases of aliases make few lines
 * of YAML very large: each value is counted once, with the size that it has each time.
 */
function checkSize(value: unknown): void {
  const sizes = new Map<object, number>(); // -1 while the members of the value are counted
  const size = (v: unknown): number => {
    if (typeof v === 'string') return v.length + 3;
    if (v === null || typeof v !== 'object') return 5;
    const known = sizes.get(v);
    if (known === -1) throw new Error('an alias is inside of what it names');
    if (known !== undefined) return known;
    sizes.set(v, -1);
    let sum = 2;
    for (const [key, member] of Object.entries(v) as [string, unknown][]) sum += (Array.isArray(v) ? 0 : key.length + 3) + size(member);
    sizes.set(v, sum);
    return sum;
  };
  if (size(value) > MAX_OBJECT) throw new Error('the document is larger than 16 MiB when its aliases are written out');
}

/** comparable returns an object without what differs between any two versions of it. */
export function comparable(object: KubeObject): KubeObject {
  const { managedFields: _, resourceVersion: __, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/** checkNumbers refuses a value with whole numbers above 2^53: JavaScript has rounded them, so it must not be sent. */
export function checkNumbers(value: unknown): void {
  if (typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)) {
    throw new Error('there is a whole number above 2^53, which a browser cannot hold exactly: use kubectl');
  }
  if (value && typeof value === 'object') for (const one of Object.values(value)) checkNumbers(one);
}

/** roundedNumber is the message of checkNumbers, '' if there is none. */
export function roundedNumber(value: unknown): string {
  try {
    checkNumbers(value);
    return '';
  } catch (e) {
    return messageOf(e);
  }
}

/** documents parses the YAML or JSON of several documents. Lists are taken apart. */
export function documents(text: string): KubeObject[] {
  const found: Partial<KubeObject>[] = []; // what is sent is for the server to check
  for (const one of loadAll(text, { schema })) {
    checkSize(one);
    checkNumbers(one);
    if (one === null || one === undefined) continue;
    if (!isMembers(one)) throw new Error('a document is not an object');
    if (textAt(one, 'kind').endsWith('List') && Array.isArray(one.items)) found.push(...(one.items as Partial<KubeObject>[]));
    else found.push(one);
  }
  return found.map((o) => ({ ...o, metadata: o.metadata ?? {} }));
}

/** oneDocument parses the YAML of one object. */
export function oneDocument(text: string): KubeObject {
  const [one, ...others] = documents(text);
  if (!one || others.length) throw new Error(`there must be one document, not ${one ? 1 + others.length : 0}`);
  return one;
}
