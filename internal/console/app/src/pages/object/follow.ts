// An object that is followed.

import { useEffect, useState } from 'preact/hooks';
import { request, sleep } from '../../client/request';
import { watch, WhileShown } from '../../client/watch';
import { APIError, isAbort, type KubeObject } from '../../logic/kubernetes';
import { query } from '../../logic/links';
import { listPath, objectPath, type Resource } from '../../logic/resources';

interface Followed {
  object?: KubeObject;
  gone: boolean;
  error?: unknown;
}

/** useObject reads an object and follows its changes. */
export function useObject(resource: Resource, namespace: string, name: string): Followed & { reload: () => void } {
  const [state, set] = useState<Followed>({ gone: false });
  const [again, setAgain] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    set({ gone: false });
    const path = objectPath(resource, namespace, name);
    const run = async (): Promise<void> => {
      for (let failures = 0; !stop.signal.aborted; failures++) {
        const shown = new WhileShown(stop.signal);
        let read = false;
        try {
          await shown.begin();
          const object = await request<KubeObject>(path, { signal: stop.signal });
          read = true;
          set({ object, gone: false });
          if (!resource.verbs.includes('watch')) return;
          const list = listPath(resource, namespace) + query({
            fieldSelector: `metadata.name=${name}`, watch: 1, resourceVersion: object.metadata.resourceVersion, timeoutSeconds: 1800,
          });
          const began = Date.now();
          for await (const event of watch<KubeObject>(list, shown.signal)) {
            failures = 0;
            if (event.type === 'BOOKMARK') continue;
            set({ object: event.object, gone: event.type === 'DELETED' });
          }
          if (Date.now() - began > 10_000) failures = 0;
        } catch (e) {
          if (stop.signal.aborted) return;
          if (isAbort(e)) continue; // the page was hidden: it reads again when it is shown
          if (read && e instanceof APIError && e.code === 403) return; // it may be read, and not watched
          if (e instanceof APIError && e.code !== 410 && e.code !== 429 && e.code < 500) {
            set((s) => (e.code === 404 && s.object ? { ...s, gone: true } : { ...s, error: e, gone: e.code === 404 }));
            return;
          }
          set((s) => ({ ...s, error: e })); // until the next try
        } finally {
          shown.end();
        }
        await sleep(Math.min(30_000, 1000 * 2 ** failures), stop.signal);
      }
    };
    void run();
    return () => stop.abort();
  }, [resource, namespace, name, again]);
  return { ...state, reload: () => setAgain((n) => n + 1) };
}
