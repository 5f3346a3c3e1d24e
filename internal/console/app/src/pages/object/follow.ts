// An object that is followed.

import { useEffect, useState } from 'preact/hooks';
import { request } from '../../client/request';
import { follow } from '../../client/watch';
import { APIError, type KubeObject } from '../../logic/kubernetes';
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
    void follow<KubeObject>(
      {
        path: listPath(resource, namespace), parameters: { fieldSelector: `metadata.name=${name}` },
        revisionOf: (object) => object.metadata.resourceVersion ?? '',
        read: async () => {
          const object = await request<KubeObject>(objectPath(resource, namespace, name), { signal: stop.signal });
          set({ object, gone: false });
          return resource.verbs.includes('watch') ? (object.metadata.resourceVersion ?? '') : undefined;
        },
        event: (type, object) => set({ object, gone: type === 'DELETED' }),
        failed: (e, final, watching) => {
          const code = e instanceof APIError ? e.code : 0;
          if (watching && code === 403) return; // it may be read, and not watched
          set((s) => (code === 404 && s.object ? { ...s, gone: true } : { ...s, error: e, gone: code === 404 || (s.gone && !final) }));
        },
      },
      stop.signal,
    );
    return () => stop.abort();
  }, [resource, namespace, name, again]);
  return { ...state, reload: () => setAgain((n) => n + 1) };
}
