// Requests to the Kubernetes API: with the login, again when a server is busy, and with an end when it is silent.

import { APIError, type Impersonation, type ListOf, type Status } from '../logic/kubernetes';
import { credentials, socketProtocols } from './session';
import { attended } from './silence';

export interface Request {
  method?: string;
  body?: string;
  contentType?: string;
  accept?: string;
  signal?: AbortSignal | undefined;
  as?: Impersonation | null;
  /** Nobody has asked for this request: its warnings are not shown, and a 401 does not end the login. */
  quiet?: boolean;
  /** Text instead of parsed JSON. */
  text?: boolean;
}

const JSON_TYPE = 'application/json';
/** METADATA_TYPE asks for the metadata of the objects of a list alone, TABLE_TYPE for rows. */
export const METADATA_TYPE = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json';
export const TABLE_TYPE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';

/** listeners are told about every warning that the server sends, and about an end of the login. */
export const listeners = { warning: (_text: string): void => {}, unauthorized: (): void => {} };

function headers(r: Request): Headers {
  const h = new Headers({ Accept: r.accept ?? JSON_TYPE, ...credentials() });
  if (r.as) {
    h.set('Impersonate-User', r.as.user);
    for (const group of r.as.groups) h.append('Impersonate-Group', group);
  }
  if (r.body !== undefined) h.set('Content-Type', r.contentType ?? JSON_TYPE);
  return h;
}

/** sent is fetch. A read that did not get through, as when a connection has just ended, is sent once more. */
export async function sent(path: string, o: RequestInit, again: boolean): Promise<Response> {
  try {
    return await fetch(path, o);
  } catch (e) {
    if (!again || !(e instanceof TypeError)) throw e;
    await sleep(250, o.signal ?? undefined);
    return await fetch(path, o);
  }
}

/** MOST_REPEATS and LONGEST_WAIT bound how often, and after how many seconds, a request is sent again to a busy server. */
const MOST_REPEATS = 3;
const LONGEST_WAIT = 10;

/** send sends a request and returns the response if its code is 2xx. Other codes are an APIError. */
export async function send(path: string, r: Request = {}): Promise<Response> {
  if (r.method) return sendOnce(path, r); // it is not known what a write has done whose answer nobody awaits
  const attention = attended(r.signal);
  try {
    return await sendOnce(path, { ...r, signal: attention.signal });
  } finally {
    attention.done();
  }
}

async function sendOnce(path: string, r: Request): Promise<Response> {
  const o: RequestInit = {
    method: r.method ?? 'GET',
    headers: headers(r),
    body: r.body ?? null,
    signal: r.signal ?? null,
    credentials: 'same-origin',
    redirect: 'error',
    cache: 'no-store',
  };
  const again = !r.method || r.quiet === true; // what is quiet changes nothing
  let response = await sent(path, o, again);
  // A server that answers 429 with a time to wait has not begun to carry the request out.
  for (let repeats = 0; response.status === 429 && repeats < MOST_REPEATS; repeats++) {
    const wait = Number(response.headers.get('Retry-After') ?? NaN);
    if (!(wait >= 0 && wait <= LONGEST_WAIT)) break;
    await response.body?.cancel();
    await sleep(wait * 1000, r.signal);
    response = await sent(path, o, again);
  }
  // RFC 7234: 299 - "text"
  for (const [, text = ''] of (response.headers.get('Warning') ?? '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)) {
    if (!r.quiet) listeners.warning(text.replace(/\\(.)/g, '$1'));
  }
  if (response.ok) return response;
  const body = await response.text();
  let status: Status = {};
  try {
    status = JSON.parse(body) as Status;
  } catch {
    status = { message: body.slice(0, 500) };
  }
  if (response.status === 401 && !r.quiet) listeners.unauthorized();
  throw new APIError(response.status, status);
}

/** request returns a parsed answer. Its type is what the caller expects: it is not checked. */
export async function request<T = unknown>(path: string, r: Request = {}): Promise<T> {
  const response = await send(path, r);
  return (r.text ? await response.text() : await response.json()) as T;
}

/** requestList reads a list. Servers write null for the items of some empty lists. */
export async function requestList<T>(path: string, r: Request = {}): Promise<ListOf<T>> {
  const list = await request<ListOf<T> | null>(path, r);
  return { ...list, metadata: list?.metadata ?? {}, items: Array.isArray(list?.items) ? list.items : [] };
}

/** socket opens a WebSocket to a path of the API. */
export function socket(path: string, protocols: string[]): WebSocket {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return new WebSocket(url, [...protocols, ...socketProtocols()]);
}

/** sleep ends early, and without an error, when the signal does. */
export const sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
