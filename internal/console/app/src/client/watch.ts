// Watches: the events of a stream, and whether the page is looked at.

import { APIError, type Status, type WatchEvent } from '../logic/kubernetes';
import { attended, hear, JSON_TYPE, send, TABLE_TYPE } from './request';

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
