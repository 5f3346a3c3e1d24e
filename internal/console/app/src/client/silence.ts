// Whether a server that sends nothing is still there.

import { credentials } from './session';

/**
 * SILENCE is the time in milliseconds after which a server that sends nothing is asked whether it is there, and ANSWER the time in which
 * it has to answer. A connection that no packet gets through is told so after at most the sum and a second; the browser takes minutes.
 */
const SILENCE = 4000;
const ANSWER = 4000;

/** The error of what waits for a server that does not answer. */
const SILENT = 'the server does not answer';

/** What waits for the server: requests without an answer, and watches. */
const waiting = new Set<AbortController>();
let heard = 0;
let asking = false;
let timer: ReturnType<typeof setInterval> | undefined;

/** hear says that the server has sent something. */
export const hear = (): void => void (heard = Date.now());

/** ask asks a server that has been silent for its version. If there is no answer, what waits for it ends. */
function ask(): void {
  if (asking || document.hidden || Date.now() - heard < SILENCE) return;
  asking = true;
  const asked = [...waiting];
  const headers = { Accept: 'application/json', ...credentials() };
  fetch('/version', { signal: AbortSignal.timeout(ANSWER), headers, cache: 'no-store', credentials: 'same-origin', redirect: 'error' })
    .then(
      (response) => {
        hear();
        return response.body?.cancel();
      },
      () => asked.forEach((one) => one.abort(new Error(SILENT))),
    )
    .finally(() => (asking = false));
}

/** attended is a signal that ends with another one, or when the server does not answer. done says that it has ended. */
export function attended(signal?: AbortSignal): { signal: AbortSignal; done: () => void } {
  const silent = new AbortController();
  if (!waiting.size) {
    hear();
    timer = setInterval(ask, 1000);
  }
  waiting.add(silent);
  const done = (): void => {
    waiting.delete(silent);
    if (!waiting.size) clearInterval(timer);
  };
  return { signal: signal ? AbortSignal.any([signal, silent.signal]) : silent.signal, done };
}
