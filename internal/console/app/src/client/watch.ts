// List and watch: what all views that are live are made of.

import { APIError, isAbort, type Status, type WatchEvent } from '../logic/kubernetes';
import { query } from '../logic/links';
import { send, sleep } from './request';
import { attended, hear } from './silence';

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
      const [first = '', ...more] = value.split('\n');
      rest.push(first);
      length += first.length;
      const last = more.pop();
      if (last !== undefined) {
        yield rest.join('');
        yield* more;
        [rest, length] = [[last], last.length];
      }
      if (length > MAX_LINE) throw new Error('a line of the response is too long');
    }
    if (length) yield rest.join('');
  } finally {
    void reader.cancel().catch(() => {});
  }
}

/** watch yields the events of a watch until the server ends it. An ERROR is thrown. */
async function* watch<T>(path: string, signal: AbortSignal, accept: { accept?: string } = {}): AsyncGenerator<WatchEvent<T>> {
  const attention = attended(signal);
  try {
    const response = await send(path, { signal: attention.signal, ...accept });
    if (!response.body) return;
    for await (const line of lines(response.body)) {
      hear();
      if (!line) continue;
      const event = JSON.parse(line) as WatchEvent<T> | { type: 'ERROR'; object: Status };
      if (event.type === 'ERROR') throw new APIError(event.object.code ?? 500, event.object);
      yield event;
    }
  } finally {
    attention.done();
  }
}

/** A page that is hidden for so many milliseconds follows no changes: a browser has six connections to a server without HTTP/2. */
const HIDDEN_FOR = 20_000;

/** whenShown waits until the page is looked at, and returns a signal that ends with stop, or when the page has been hidden for a while. */
async function whenShown(stop: AbortSignal): Promise<{ signal: AbortSignal; end: () => void }> {
  const hidden = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  while (document.hidden && !stop.aborted) {
    await new Promise<void>((resolve) => {
      document.addEventListener('visibilitychange', () => resolve(), { once: true, signal: stop });
      stop.addEventListener('abort', () => resolve(), { once: true });
    });
  }
  stop.throwIfAborted();
  const changed = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => hidden.abort(), HIDDEN_FOR);
  };
  document.addEventListener('visibilitychange', changed);
  const end = (): void => {
    document.removeEventListener('visibilitychange', changed);
    clearTimeout(timer);
  };
  return { signal: AbortSignal.any([stop, hidden.signal]), end };
}

/** Source is something that is read, and then followed by a watch. */
export interface Source<T> {
  /** read reads what there is. It returns the revision from which it is followed, or undefined if it cannot be followed. */
  read: () => Promise<string | undefined>;
  path: string;
  parameters: Record<string, string | undefined>;
  accept?: string;
  /** revisionOf returns the revision of the object of an event or a bookmark, '' if it has none. */
  revisionOf: (object: T) => string;
  /** event takes a change. It may return false: then all is read again. */
  event: (type: Exclude<WatchEvent<T>['type'], 'BOOKMARK'>, object: T) => unknown;
  /** failed is told about an error. final: no other try follows. watching: what there is has been read. */
  failed: (e: unknown, final: boolean, watching: boolean) => void;
  /** resumed is called before a watch begins. With it, a watch that has failed, or that the page was hidden for, goes on from its last event. */
  resumed?: () => void;
}

/** A watch that lasts for so many milliseconds was of use: the next one begins at once. */
const OF_USE = 10_000;

/** LONGEST_PAUSE is the longest time in milliseconds between two tries. The first pause is a second, each further one twice as long. */
const LONGEST_PAUSE = 30_000;

/** The server does not carry out such a request, and will not. 410 says that the revision is too old, 429 that it is busy. */
const isFinal = (e: unknown): boolean => e instanceof APIError && e.code < 500 && e.code !== 410 && e.code !== 429;

/**
 * follow reads a source and follows its changes until stop, or an error that is final. A watch that the server ends goes on from the last
 * event or bookmark. After an error, and when the page was hidden, all is read again, unless the source can be resumed. A revision that is
 * too old (410) is not told: what there is is read again.
 */
export async function follow<T>(source: Source<T>, stop: AbortSignal): Promise<void> {
  let from: string | undefined;
  for (let failures = 0; ; ) {
    let end = (): void => {};
    try {
      const shown = await whenShown(stop);
      end = shown.end;
      from ??= await source.read();
      if (from === undefined) return;
      source.resumed?.();
      const began = Date.now();
      const parameters = { ...source.parameters, watch: 1, resourceVersion: from, allowWatchBookmarks: 'true', timeoutSeconds: 1800 };
      for await (const { type, object } of watch<T>(source.path + query(parameters), shown.signal, source)) {
        failures = 0;
        from = source.revisionOf(object) || from;
        if (type === 'BOOKMARK' || source.event(type, object) !== false) continue;
        from = undefined;
        break;
      }
      failures = Date.now() - began > OF_USE ? 0 : failures + 1;
    } catch (e) {
      if (stop.aborted) return;
      const watching = from !== undefined;
      const gone = e instanceof APIError && e.code === 410;
      if (gone || !source.resumed) from = undefined;
      if (isAbort(e)) continue; // the page was hidden
      failures++;
      if (!gone) source.failed(e, isFinal(e), watching);
      if (isFinal(e)) return;
    } finally {
      end();
    }
    if (failures) await sleep(Math.min(LONGEST_PAUSE, 500 * 2 ** failures), stop);
  }
}
