// The client of the Kubernetes API. The token of a login is in this module alone, in memory: it is gone with the page.

let token = '';

/** The session of `keelson console`: without it the cookie is worth nothing. Other ports of the host cannot read it. */
let session = '';

export const SESSION_HEADER = 'X-Keelson-Console';
const SESSION_KEY = 'keelson-session';

/** takeSession takes the session that the one-time link has put into the address, or that an earlier tab has kept. */
export function takeSession(): void {
  const given = /^#session=([\w-]+)$/.exec(location.hash)?.[1];
  if (given) {
    localStorage.setItem(SESSION_KEY, given);
    history.replaceState(null, '', location.pathname);
  }
  session = given ?? localStorage.getItem(SESSION_KEY) ?? '';
}

export const sessionHeader = (): Record<string, string> => ({ [SESSION_HEADER]: session || '1' });

export interface Impersonation {
  user: string;
  groups: string[];
}

export function setToken(value: string): void {
  token = value;
}

export function hasToken(): boolean {
  return token !== '';
}

/** Status is the error answer of a Kubernetes API server. */
export interface Status {
  kind?: string;
  code?: number;
  reason?: string;
  message?: string;
  details?: { causes?: { field?: string; message?: string; reason?: string }[]; retryAfterSeconds?: number };
}

export class APIError extends Error {
  constructor(
    readonly code: number,
    readonly status: Status,
  ) {
    super(status.message || `the server answered ${code}`);
  }
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

export interface ManagedFields {
  manager?: string;
  operation?: string;
  time?: string;
  subresource?: string;
  fieldsV1?: Record<string, unknown>;
}

export interface Metadata {
  name?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  finalizers?: string[];
  managedFields?: ManagedFields[];
  [key: string]: unknown;
}

// An object of any kind: what is in it is not known here.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Value = any;

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
  [key: string]: Value;
}

export interface ListOf<T> {
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items: T[];
}

export interface Request {
  method?: string;
  body?: string;
  contentType?: string;
  accept?: string;
  signal?: AbortSignal;
  as?: Impersonation | null;
  /** Nobody has asked for this request: its warnings are not shown, and a 401 does not end the login. */
  quiet?: boolean;
  /** Text instead of parsed JSON. */
  text?: boolean;
}

const JSON_TYPE = 'application/json';
const TABLE_TYPE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';

/** listeners are told about every warning that the server sends, and about an end of the login. */
export const listeners = {
  warning: (_text: string): void => {},
  unauthorized: (): void => {},
};

function headers(r: Request): Headers {
  const h = new Headers({ Accept: r.accept ?? JSON_TYPE, [SESSION_HEADER]: session || '1' });
  if (token) h.set('Authorization', `Bearer ${token}`);
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

/**
 * SILENCE is the time in milliseconds after which a server that sends nothing is asked whether it is there, and ANSWER the time in which
 * it has to answer. A connection that no packet gets through is told so after at most the sum and a second; the browser takes minutes.
 */
const SILENCE = 4000;
const ANSWER = 4000;

/** What waits for the server: requests without an answer, and watches. */
const waiting = new Set<AbortController>();
let heard = 0;
let asking = false;

const hear = (): void => void (heard = Date.now());

/** The error of what waits for a server that does not answer. */
const SILENT = 'the server does not answer';

setInterval(() => {
  if (asking || document.hidden || !waiting.size || Date.now() - heard < SILENCE) return;
  asking = true;
  const o: RequestInit = { signal: AbortSignal.timeout(ANSWER), headers: headers({}), cache: 'no-store', credentials: 'same-origin', redirect: 'error' };
  const asked = [...waiting];
  fetch('/version', o)
    .then(
      (response) => {
        hear();
        return response.body?.cancel();
      },
      () => asked.forEach((one) => one.abort(new Error(SILENT))),
    )
    .finally(() => (asking = false));
}, 1000);

/** attended is a signal that ends with another one, or when the server does not answer. done says that it has ended. */
function attended(signal?: AbortSignal): { signal: AbortSignal; done: () => void } {
  const silent = new AbortController();
  if (!waiting.size) hear();
  waiting.add(silent);
  return { signal: signal ? AbortSignal.any([signal, silent.signal]) : silent.signal, done: () => void waiting.delete(silent) };
}

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
    body: r.body,
    signal: r.signal,
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
  for (const [, text] of (response.headers.get('Warning') ?? '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)) {
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

export async function request<T = Value>(path: string, r: Request = {}): Promise<T> {
  const response = await send(path, r);
  return (r.text ? await response.text() : await response.json()) as T;
}

/** requestList reads a list. Servers write null for the items of some empty lists. */
export async function requestList<T = Value>(path: string, r: Request = {}): Promise<ListOf<T>> {
  const list = await request<ListOf<T> | null>(path, r);
  return { ...list, metadata: list?.metadata ?? {}, items: Array.isArray(list?.items) ? list.items : [] };
}

export interface Column {
  name: string;
  type: string;
  format?: string;
  description?: string;
  priority: number;
}

export interface TableRow {
  cells: Value[];
  object: KubeObject;
}

export interface Table {
  columnDefinitions?: Column[];
  rows?: TableRow[];
  metadata: ListOf<unknown>['metadata'];
}

export const requestTable = (path: string, signal?: AbortSignal): Promise<Table> =>
  request<Table>(path, { accept: TABLE_TYPE, signal });

export interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T;
}

/** A line of a stream that is longer than this ends it: nothing that the page shows is so long. */
const MAX_LINE = 32 << 20;

/** lines yields the lines of a body as they arrive. */
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest: string[] = []; // the parts of a line that has not ended
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = value.split('\n');
      if (parts.length > 1) {
        yield rest.join('') + parts[0];
        yield* parts.slice(1, -1);
        [rest, length] = [[], 0];
      }
      rest.push(parts[parts.length - 1]);
      length += parts[parts.length - 1].length;
      if (length > MAX_LINE) throw new Error('a line of the response is too long');
    }
    if (length) yield rest.join('');
  } finally {
    void reader.cancel().catch(() => {});
  }
}

/** watch yields the events of a watch until the server ends it. */
export async function* watch<T>(path: string, signal: AbortSignal, table = false): AsyncGenerator<WatchEvent<T>> {
  const attention = attended(signal);
  try {
    const response = await send(path, { signal: attention.signal, accept: table ? TABLE_TYPE : JSON_TYPE });
    if (!response.body) return;
    for await (const line of lines(response.body)) {
      hear();
      if (!line) continue;
      const event = JSON.parse(line) as WatchEvent<T>;
      if (event.type === 'ERROR') {
        const status = event.object as Status;
        throw new APIError(status.code ?? 500, status);
      }
      yield event;
    }
  } finally {
    attention.done();
  }
}

export function query(parameters: Record<string, string | number | boolean | undefined>): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== '' && value !== false) q.set(key, String(value));
  }
  const text = q.toString();
  return text ? `?${text}` : '';
}

/** socket opens a WebSocket to a path of the API. A token goes into a subprotocol, as Kubernetes has it for browsers. */
export function socket(path: string, protocols: string[]): WebSocket {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const all = [...protocols];
  if (token) {
    const encoded = btoa(token).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
    all.push(`base64url.bearer.authorization.k8s.io.${encoded}`);
  }
  if (session) all.push(`keelson-console.${session}`);
  return new WebSocket(url, all);
}

export const sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });

export const isAbort = (e: unknown): boolean => e instanceof DOMException && e.name === 'AbortError';

export const messageOf = (e: unknown): string => (e instanceof Error ? e.message : String(e));

/** A page that is hidden for so long follows no changes: a browser has six connections to a server without HTTP/2. */
const HIDDEN_FOR = 20_000;

/** WhileShown has a signal that ends with another one, or when the page has been hidden for a while. */
export class WhileShown {
  private readonly hidden = new AbortController();
  private timer = 0;
  readonly signal: AbortSignal;

  constructor(private readonly stop: AbortSignal) {
    this.signal = AbortSignal.any([stop, this.hidden.signal]);
  }

  /** begin waits until the page is shown. */
  async begin(): Promise<void> {
    while (document.hidden && !this.stop.aborted) {
      await new Promise<void>((resolve) => {
        document.addEventListener('visibilitychange', () => resolve(), { once: true, signal: this.signal });
        this.stop.addEventListener('abort', () => resolve(), { once: true });
      });
    }
    this.stop.throwIfAborted();
    document.addEventListener('visibilitychange', this.changed);
  }

  end(): void {
    document.removeEventListener('visibilitychange', this.changed);
    clearTimeout(this.timer);
  }

  private readonly changed = (): void => {
    clearTimeout(this.timer);
    if (document.hidden) this.timer = window.setTimeout(() => this.hidden.abort(), HIDDEN_FOR);
  };
}
