import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { send } from '../src/client/request';
import { setToken } from '../src/client/session';
import { follow, lines, type Source } from '../src/client/watch';
import { APIError } from '../src/logic/kubernetes';

/** The end of a watch that a test writes to. */
interface Stream {
  path: string;
  event: (type: string, revision: string, code?: number) => Promise<void>;
  close: () => Promise<void>;
  break: () => Promise<void>;
}

interface Page extends EventTarget {
  hidden: boolean;
}

let page: Page;
let streams: Stream[];
let asked: { path: string; headers: Headers }[];
/** What is answered to a request that is no watch, by its path. */
let answer: (path: string) => Response | Promise<Response>;

const status = (code: number, headers: Record<string, string> = {}): Response => new Response(JSON.stringify({ kind: 'Status', code, message: `is ${code}` }), { status: code, headers });

/** settle lets all promises run that wait for no time. */
const settle = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
};
const pass = async (ms: number): Promise<void> => {
  for (let rest = ms; rest > 0; rest -= 500) {
    mock.timers.tick(Math.min(rest, 500));
    await settle();
  }
};

beforeEach(() => {
  mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'] });
  page = Object.assign(new EventTarget(), { hidden: false });
  [streams, asked] = [[], []];
  answer = () => new Response('{}');
  Object.assign(globalThis, { document: page });
  mock.method(globalThis, 'fetch', async (path: string, o: RequestInit) => {
    o.signal?.throwIfAborted();
    asked.push({ path, headers: o.headers as Headers });
    const ended = new Promise<never>((_, reject) => o.signal?.addEventListener('abort', () => reject(o.signal?.reason as Error)));
    if (!path.includes('watch=1')) return await Promise.race([answer(path), ended]);
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({ start: (c) => void (controller = c) });
    const after = async (action: () => void): Promise<void> => {
      action();
      await settle();
    };
    streams.push({
      path,
      event: (type, revision, code) => after(() => controller.enqueue(new TextEncoder().encode(`${JSON.stringify({ type, object: { revision, code } })}\n`))),
      close: () => after(() => controller.close()),
      break: () => after(() => controller.error(new TypeError('network error'))),
    });
    ended.catch((e: unknown) => controller.error(e));
    return new Response(body);
  });
});
afterEach(() => mock.reset());

/** begin follows a source whose reads give the revisions 100, 200 and so on, and tells what happened. */
function begin(over: Partial<Source<{ revision: string }>> = {}): { told: string[]; stop: AbortController; done: Promise<void> } {
  const told: string[] = [];
  const stop = new AbortController();
  let reads = 0;
  const source: Source<{ revision: string }> = {
    path: '/list', parameters: { fieldSelector: 'a=b' },
    read: () => {
      told.push('read');
      return Promise.resolve(String(++reads * 100));
    },
    revisionOf: (o) => o.revision,
    event: (type, o) => void told.push(`${type} ${o.revision}`),
    failed: (e, final, watching) => void told.push(`${(e as Error).message}${final ? ', final' : ''}${watching ? ', watching' : ''}`),
    ...over,
  };
  return { told, stop, done: follow(source, stop.signal) };
}

const revisions = (): (string | null)[] => streams.map((s) => new URLSearchParams(s.path.split('?')[1]).get('resourceVersion'));

test('a watch that the server ends goes on from the last event or bookmark', async () => {
  const { told, stop, done } = begin();
  await settle();
  await streams[0]!.event('ADDED', '101');
  await pass(11_000);
  await streams[0]!.close();
  assert.deepEqual(revisions(), ['100', '101'], 'at once: it had lasted');
  await streams[1]!.event('BOOKMARK', '150');
  await streams[1]!.close();
  assert.equal(streams.length, 2, 'after a pause: it had not');
  await pass(1000);
  assert.deepEqual(revisions(), ['100', '101', '150']);
  assert.deepEqual(told, ['read', 'ADDED 101']);
  assert.match(streams[0]!.path, /^\/list\?fieldSelector=a%3Db&watch=1&resourceVersion=100&allowWatchBookmarks=true&timeoutSeconds=1800$/);
  stop.abort();
  await done;
});

test('a revision that is too old is read again, and not told', async () => {
  const { told, stop, done } = begin({ resumed: () => {} });
  await settle();
  await streams[0]!.event('ERROR', '', 410);
  await pass(1000);
  assert.deepEqual([told, revisions()], [['read', 'read'], ['100', '200']]);
  stop.abort();
  await done;
});

test('after an error all is read again, or the watch goes on if it can be resumed', async () => {
  for (const resumes of [false, true]) {
    streams = [];
    const { told, stop, done } = begin(resumes ? { resumed: () => {} } : {});
    await settle();
    await streams[0]!.event('MODIFIED', '120');
    await streams[0]!.break();
    await pass(1000);
    assert.deepEqual(told, ['read', 'MODIFIED 120', 'network error, watching', ...(resumes ? [] : ['read'])]);
    assert.deepEqual(revisions(), ['100', resumes ? '120' : '200']);
    stop.abort();
    await done;
  }
});

test('the pause doubles up to 30 seconds, and an event ends that', async () => {
  const times: number[] = [];
  let fails = true;
  const { stop, done } = begin({
    read: () => {
      times.push(Date.now());
      return fails ? Promise.reject(new TypeError('no network')) : Promise.resolve('5');
    },
  });
  await pass(130_000);
  fails = false;
  await pass(30_000);
  assert.deepEqual(times.slice(1, 9).map((t, i) => (t - times[i]!) / 1000), [1, 2, 4, 8, 16, 30, 30, 30]);
  await streams[0]!.event('ADDED', '6');
  await streams[0]!.break();
  const reads = times.length;
  await pass(1000);
  assert.equal(times.length, reads + 1);
  stop.abort();
  await done;
});

test('a refusal is final, a busy server is not', async () => {
  const refused = begin({ read: () => Promise.reject(new APIError(403, { message: 'no' })) });
  await refused.done;
  assert.deepEqual(refused.told, ['no, final']);
  const busy = begin({ read: () => Promise.reject(new APIError(429, { message: 'busy' })) });
  await pass(3000);
  assert.deepEqual(busy.told, ['busy', 'busy']);
  busy.stop.abort();
  await busy.done;
  const only = begin({ read: () => Promise.resolve(undefined) });
  await only.done;
  assert.equal(streams.length, 0, 'it cannot be followed');
});

test('event may ask to read again', async () => {
  const { told, stop, done } = begin({ event: () => false });
  await settle();
  await streams[0]!.event('ADDED', '101');
  await pass(1000);
  assert.deepEqual([told, revisions()], [['read', 'read'], ['100', '200']]);
  stop.abort();
  await done;
});

const hide = (hidden: boolean): void => {
  page.hidden = hidden;
  page.dispatchEvent(new Event('visibilitychange'));
};

test('a page that is hidden for 20 seconds follows nothing, and reads again when it is shown', async () => {
  const { told, stop, done } = begin();
  await settle();
  hide(true);
  await pass(19_000);
  hide(false);
  await pass(30_000);
  await streams[0]!.event('ADDED', '101');
  hide(true);
  await pass(60_000);
  assert.deepEqual(told, ['read', 'ADDED 101']);
  assert.equal(streams.length, 1);
  hide(false);
  await settle();
  assert.deepEqual([told.at(-1), revisions()], ['read', ['100', '200']]);
  stop.abort();
  await done;
});

test('it ends while the page is hidden', async () => {
  hide(true);
  const { told, stop, done } = begin();
  await settle();
  stop.abort();
  await done;
  assert.deepEqual(told, []);
});

test('a server that is silent and does not answer is told within 10 seconds', async () => {
  const { told, stop, done } = begin();
  await settle();
  const timeout = new AbortController();
  mock.method(AbortSignal, 'timeout', (ms: number) => {
    setTimeout(() => timeout.abort(new Error('timeout')), ms);
    return timeout.signal;
  });
  answer = () => new Promise(() => {});
  await pass(9500);
  assert.deepEqual(told.slice(0, 2), ['read', 'the server does not answer, watching']);
  stop.abort();
  await done;
});

test('a server that is silent and answers is not asked all the time', async () => {
  setToken('t');
  const { told, stop, done } = begin();
  await pass(30_000);
  assert.deepEqual(told, ['read']);
  const versions = asked.filter((a) => a.path === '/version').length;
  assert.ok(versions >= 5 && versions <= 8, String(versions));
  assert.equal(new Headers(asked.at(-1)!.headers).get('Authorization'), 'Bearer t');
  setToken('');
  stop.abort();
  await done;
  await pass(30_000);
  assert.equal(asked.filter((a) => a.path === '/version').length, versions, 'nothing waits for it any more');
});

test('lines are whole, whatever the parts are', async () => {
  const bytes = new TextEncoder().encode('a\n\nbä\u{1f600}c\nlast');
  for (let size = 1; size <= bytes.length; size++) {
    const body = new ReadableStream<Uint8Array>({
      start(c) {
        for (let at = 0; at < bytes.length; at += size) c.enqueue(bytes.subarray(at, at + size));
        c.close();
      },
    });
    const found: string[] = [];
    for await (const line of lines(body)) found.push(line);
    assert.deepEqual(found, ['a', '', 'bä\u{1f600}c', 'last'], String(size));
  }
});

test('a request to a busy server is sent again three times at most, after the time that it asks for', async () => {
  answer = () => status(429, { 'Retry-After': '2' });
  let error: unknown;
  void send('/x').catch((e: unknown) => (error = e));
  await pass(10_000);
  assert.equal(asked.filter((a) => a.path === '/x').length, 4);
  assert.equal((error as APIError).code, 429);
  answer = () => status(429, { 'Retry-After': '60' });
  await assert.rejects(send('/y'), /is 429/);
  assert.equal(asked.filter((a) => a.path === '/y').length, 1);
});

test('a read that did not get through is sent once more, a write is not', async () => {
  let left = 1;
  answer = (path) => (path === '/version' || left-- <= 0 ? new Response('{}') : Promise.reject(new TypeError('fetch failed')));
  const read = send('/x');
  await settle();
  await pass(500);
  assert.ok((await read).ok);
  left = 1;
  await assert.rejects(send('/x', { method: 'POST' }), /fetch failed/);
});
