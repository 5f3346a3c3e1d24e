// Values of which nothing is known: what is in them at a path, if it is what is looked for.

export type Members = Record<string, unknown>;

/** isMembers tells whether a value is a JSON object, and no list. */
export const isMembers = (value: unknown): value is Members => typeof value === 'object' && value !== null && !Array.isArray(value);

/** at returns the member at a path, undefined if there is none. */
export const at = (value: unknown, ...path: string[]): unknown =>
  path.reduce<unknown>((v, key) => (isMembers(v) ? v[key] : undefined), value);

/** textAt returns the text at a path, '' if there is none. */
export function textAt(value: unknown, ...path: string[]): string {
  const found = at(value, ...path);
  return typeof found === 'string' ? found : '';
}

/** listAt returns the list at a path, an empty one if there is none. */
export function listAt(value: unknown, ...path: string[]): unknown[] {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
}

/** put sets the member at a path. What the path leads through and does not exist is made. */
export function put(value: Members, path: string[], member: unknown): void {
  const [key = '', ...below] = path;
  if (!below.length) value[key] = member;
  else put(isMembers(value[key]) ? value[key] : (value[key] = {}), below, member);
}
