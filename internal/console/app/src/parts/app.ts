// What all views share: what the server has, who the user is, and how they load something.

import { createContext } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import type { Config, ServerInfo } from '../client/server';
import { isAbort } from '../logic/kubernetes';
import type { Discovery } from '../logic/resources';

export interface App {
  config: Config;
  server: ServerInfo;
  discovery: Discovery;
  user: { username: string; groups: string[] };
  refreshDiscovery: () => Promise<void>;
  logOut: () => void;
}

export const AppContext = createContext<App>(null as unknown as App);

export const useApp = (): App => useContext(AppContext);

export interface Loaded<T> {
  value?: T;
  error?: unknown;
  loading: boolean;
  reload: () => void;
}

/** useLoaded loads a value again when keys change. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, keys: unknown[]): Loaded<T> {
  const [state, set] = useState<{ value?: T; error?: unknown; loading: boolean }>({ loading: true });
  const [again, setAgain] = useState(0);
  const last = useRef<unknown[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    const same = last.current.length === keys.length && keys.every((k, i) => k === last.current[i]);
    last.current = keys;
    set((s) => (same ? { ...s, loading: true } : { loading: true }));
    load(stop.signal).then(
      (value) => stop.signal.aborted || set({ value, loading: false }),
      (error: unknown) => stop.signal.aborted || isAbort(error) || set({ error, loading: false }),
    );
    return () => stop.abort();
  }, [...keys, again]);
  return { ...state, reload: () => setAgain((n) => n + 1) };
}

/** useEvery calls a function every so many milliseconds while the page is looked at. */
export function useEvery(ms: number, f: () => void): void {
  const latest = useRef(f);
  latest.current = f;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || latest.current(), ms);
    return () => clearInterval(timer);
  }, []);
}
