// The schema of a definition: its types and limits as text, and the fields of a form for it.

import type { KubeObject } from './kubernetes';

/** Definition is a CustomResourceDefinition. */
export interface Definition extends KubeObject {
  spec?: {
    group?: string;
    scope?: string;
    names?: { kind?: string; plural?: string; shortNames?: string[] };
    versions?: {
      name?: string;
      served?: boolean;
      storage?: boolean;
      deprecated?: boolean;
      deprecationWarning?: string;
      schema?: { openAPIV3Schema?: Schema };
    }[];
  };
}

export interface Schema {
  type?: string;
  description?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  required?: string[];
  enum?: unknown[];
  default?: unknown;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  nullable?: boolean;
  additionalProperties?: Schema | boolean;
  'x-kubernetes-int-or-string'?: boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  'x-kubernetes-validations'?: { rule: string; message?: string }[];
}

/** typeOf is a type in words: list of map of string. */
export function typeOf(s: Schema): string {
  if (s['x-kubernetes-int-or-string']) return 'integer or string';
  if (s.type === 'array') return `list of ${s.items ? typeOf(s.items) : 'anything'}`;
  if (s.type === 'object' && typeof s.additionalProperties === 'object') return `map of ${typeOf(s.additionalProperties)}`;
  return `${s.type ?? 'anything'}${s.format ? ` (${s.format})` : ''}`;
}

export function limits(s: Schema): string[] {
  const out: string[] = [];
  if (s.enum) out.push(`one of ${s.enum.map(String).join(', ')}`);
  if (s.default !== undefined) out.push(`default ${JSON.stringify(s.default)}`);
  if (s.minimum !== undefined) out.push(`at least ${s.minimum}`);
  if (s.maximum !== undefined) out.push(`at most ${s.maximum}`);
  if (s.minLength !== undefined) out.push(`at least ${s.minLength} characters`);
  if (s.maxLength !== undefined) out.push(`at most ${s.maxLength} characters`);
  if (s.maxItems !== undefined) out.push(`at most ${s.maxItems}`);
  if (s.pattern) out.push(`matches ${s.pattern}`);
  if (s.nullable) out.push('may be null');
  return out;
}

export interface SimpleField {
  path: string[];
  schema: Schema;
  required: boolean;
}

const MOST_FIELDS = 80;

/** simpleFields returns the fields that a form has: those of one value or of a list of texts, five levels deep, 80 at most. */
export function simpleFields(schema: Schema): SimpleField[] {
  const out: SimpleField[] = [];
  const visit = (s: Schema, path: string[], required: boolean): void => {
    if (out.length >= MOST_FIELDS || path.length > 5 || path.some((part) => part in Object.prototype)) return;
    if (s.properties) {
      for (const [key, one] of Object.entries(s.properties)) visit(one, [...path, key], required && (s.required?.includes(key) ?? false));
      return;
    }
    const texts = s.type === 'array' && (s.items?.type === 'string' || s.items?.type === 'integer');
    if (texts || ['string', 'integer', 'number', 'boolean'].includes(s.type ?? '') || s['x-kubernetes-int-or-string']) {
      out.push({ path, schema: s, required });
    }
  };
  for (const [key, s] of Object.entries(schema.properties ?? {})) {
    if (!['apiVersion', 'kind', 'metadata', 'status'].includes(key)) visit(s, [key], schema.required?.includes(key) ?? false);
  }
  return out;
}

/** convert returns the value that the text of a field stands for. A list is separated by commas. */
export function convert(s: Schema, text: string): unknown {
  if (s.type === 'array') return text.split(',').map((t) => convert(s.items ?? {}, t.trim())).filter((v) => v !== '');
  if (s.type === 'boolean') return text === 'true';
  if (s.type === 'integer' || s.type === 'number') return Number(text);
  if (s['x-kubernetes-int-or-string'] && /^-?\d+$/.test(text)) return Number(text);
  return text;
}
