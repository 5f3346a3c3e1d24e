// Addresses: of views of the page, where what follows # is a path and parameters, so that the server needs one document only, and of requests.

import { escapeSegment, keyOf, type Resource } from './resources';

/** query returns parameters as the end of an address, with its ?. What is undefined, empty or false is left out. */
export function query(parameters: Record<string, string | number | boolean | undefined>): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== '' && value !== false) q.set(key, String(value));
  }
  const text = q.toString();
  return text ? `?${text}` : '';
}

export interface Location {
  path: string[];
  params: URLSearchParams;
}

/** parse reads the part of an address after #. What is no valid encoding stays as it is written. */
export function parse(hash: string): Location {
  const text = hash.replace(/^#\/?/, '');
  const path = text.replace(/\?.*/s, '');
  const decode = (part: string): string => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return { path: path.split('/').filter(Boolean).map(decode), params: new URLSearchParams(text.slice(path.length + 1)) };
}

export function link(path: string[], params: Record<string, string | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value) q.set(key, value);
  const search = q.toString();
  return `#/${path.map(escapeSegment).join('/')}${search ? `?${search}` : ''}`;
}

/** objectLink leads to a tab of an object. - stands for no namespace. */
export const objectLink = (r: Resource, namespace: string | undefined, name: string, tab = ''): string =>
  link(['o', keyOf(r), namespace || '-', name, ...(tab ? [tab] : [])]);
