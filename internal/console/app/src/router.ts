// Addresses of the page: what follows # is a path and parameters, so that the server needs one document only.

import { useEffect, useState } from 'preact/hooks';
import { keyOf, type Resource } from './discovery';

export interface Location {
  path: string[];
  params: URLSearchParams;
}

export function parse(hash: string): Location {
  const text = hash.replace(/^#\/?/, '');
  const [path, search] = [text.split('?', 1)[0], text.slice(text.indexOf('?') + 1)];
  const decode = (part: string): string => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return {
    path: path.split('/').filter(Boolean).map(decode),
    params: new URLSearchParams(text.includes('?') ? search : ''),
  };
}

/** escapeSegment escapes a text as a segment of a path. Halves of surrogate pairs, which have no encoding, become U+FFFD. */
export const escapeSegment = (text: string): string => encodeURIComponent(text.replace(/\p{Cs}/gu, '\ufffd'));

export function link(path: string[], params: Record<string, string | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value) q.set(key, value);
  const search = q.toString();
  return `#/${path.map(escapeSegment).join('/')}${search ? `?${search}` : ''}`;
}

/** The namespace that was chosen last: lists of other resources begin in it. */
let lastNamespace = '';

export const currentNamespace = (): string => lastNamespace;

export function rememberNamespace(namespace: string): void {
  lastNamespace = namespace;
}

export const listLink = (r: Resource, params: Record<string, string | undefined> = {}): string =>
  link(['r', keyOf(r)], { ns: r.namespaced ? lastNamespace || undefined : undefined, ...params });

export const objectLink = (r: Resource, namespace: string | undefined, name: string, tab = ''): string =>
  link(['o', keyOf(r), namespace || '-', name, ...(tab ? [tab] : [])]);

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
