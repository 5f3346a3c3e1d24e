// What of a Secret is hidden until somebody asks for it: the values, and the copy of them that `kubectl apply` leaves in an
// annotation. `kubectl history` hides the same (masked in cmd/keelson/kubectlhistory/table.go). Every view that shows an object, as
// text, in a comparison or on the clipboard, takes it from here.

import type { KubeObject } from './kubernetes';
import { at, isMembers } from './values';

const APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

/** HIDDEN stands for a value. It is no base64, so that a server refuses it as the data of a Secret. */
export const HIDDEN = '***';

export const isSecret = (o: KubeObject): boolean => o.kind === 'Secret' && o.apiVersion === 'v1';

/** each calls visit for each secret value of an object, which may replace it. It returns a copy, or the object if nothing is secret. */
function each(o: KubeObject, visit: (value: unknown, where: 'data' | 'stringData' | 'annotations', key: string) => unknown): KubeObject {
  if (!isSecret(o)) return o;
  const out: KubeObject = { ...o, metadata: { ...o.metadata } };
  for (const where of ['data', 'stringData'] as const) {
    const values = o[where];
    if (values === null || values === undefined) continue;
    // A server sends a map. Whatever else an edited text has here is shown by no part of it.
    if (!isMembers(values)) out[where] = visit(values, where, '');
    else out[where] = Object.fromEntries(Object.entries(values).map(([key, value]) => [key, visit(value, where, key)]));
  }
  const annotations = o.metadata.annotations;
  if (annotations && APPLIED in annotations) {
    out.metadata.annotations = { ...annotations, [APPLIED]: String(visit(annotations[APPLIED], 'annotations', APPLIED)) };
  }
  return out;
}

const valueAt = (o: KubeObject | undefined, where: string, key: string): unknown =>
  where === 'annotations' ? o?.metadata.annotations?.[key] : at(o, where, key);

/** hidden returns an object without its secret values. A value that other has too, and that differs there, is marked. */
export function hidden(o: KubeObject, other?: KubeObject, mark = ''): KubeObject {
  return each(o, (value, where, key) => {
    const there = valueAt(other, where, key);
    return there === undefined || there === value ? HIDDEN : `${HIDDEN} (${mark})`;
  });
}

/** hiddenPair returns two versions of an object without their secret values. Values that differ still do. */
export const hiddenPair = (before: KubeObject, after: KubeObject): [KubeObject, KubeObject] => [
  hidden(before, after, 'before'), hidden(after, before, 'after'),
];

/** restored puts the values of base where an edited object still has what hidden has put in their place. */
export function restored(edited: KubeObject, base: KubeObject): KubeObject {
  return each(edited, (value, where, key) => {
    if (value !== HIDDEN || where === 'stringData') return value;
    const was = valueAt(base, where, key);
    if (was === undefined) throw new Error(`the value of ${key || where} is hidden, and cannot be moved: show the values first`);
    return was;
  });
}

/** decoded returns a value of the data of a Secret as text, and its length in bytes. What is no UTF-8 stays in base64. */
export function decoded(value: string): { text: string; bytes: number } {
  let bytes = new Uint8Array();
  try {
    bytes = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
    return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes), bytes: bytes.length };
  } catch {
    return { text: `${value} (base64)`, bytes: bytes.length };
  }
}
