// The address of the view that is shown, and the namespace that was chosen last.

import { useEffect, useState } from 'preact/hooks';
import { link, parse, type Location } from '../logic/links';
import { keyOf, type Resource } from '../logic/resources';

/** The namespace that was chosen last: lists of other resources begin in it. */
let lastNamespace = '';

export const currentNamespace = (): string => lastNamespace;

export function rememberNamespace(namespace: string): void {
  lastNamespace = namespace;
}

/** listLink leads to a list in the namespace that was chosen last. */
export const listLink = (r: Resource, params: Record<string, string | undefined> = {}): string =>
  link(['r', keyOf(r)], { ns: r.namespaced ? lastNamespace || undefined : undefined, ...params });

export function go(to: string): void {
  location.hash = to;
}

export function useLocation(): Location {
  const [at, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = (): void => set(parse(location.hash));
    addEventListener('hashchange', changed);
    changed(); // it may have changed since it was read
    return () => removeEventListener('hashchange', changed);
  }, []);
  return at;
}

/** setParams changes parameters of the address in place, without an entry in the history of the browser. */
export function setParams(changes: Record<string, string | undefined>): void {
  const at = parse(location.hash);
  const params = Object.fromEntries(at.params);
  history.replaceState(null, '', link(at.path, { ...params, ...changes }));
  dispatchEvent(new HashChangeEvent('hashchange'));
}
