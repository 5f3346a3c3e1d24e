// What all views share: what the server has, who the user is, and messages.

import { createContext } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { isAbort, messageOf, request, type Value } from './api';
import type { Config, Discovery, ServerInfo } from './discovery';

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

export interface Toast {
  id: number;
  kind: 'info' | 'warning' | 'error';
  text: string;
}

let nextToast = 1;
let toasts: Toast[] = [];
let toastsChanged = (_: Toast[]): void => {};

/** toast shows a message at the edge of the page for some seconds. */
export function toast(kind: Toast['kind'], text: string): void {
  if (toasts.some((t) => t.text === text)) return;
  const one = { id: nextToast++, kind, text };
  toasts = [...toasts.slice(-4), one];
  toastsChanged(toasts);
  setTimeout(() => dismiss(one.id), { info: 3000, warning: 6000, error: 12_000 }[kind]);
}

export function dismiss(id: number): void {
  toasts = toasts.filter((t) => t.id !== id);
  toastsChanged(toasts);
}

export function useToasts(): Toast[] {
  const [shown, set] = useState(toasts);
  useEffect(() => {
    toastsChanged = set;
  }, []);
  return shown;
}

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

/** attempt runs an action of the user and shows its error. */
export async function attempt(what: string, action: () => Promise<void>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (e) {
    if (!isAbort(e)) toast('error', `${what}: ${messageOf(e)}`);
    return false;
  }
}

export async function whoAmI(): Promise<{ username: string; groups: string[] }> {
  const review: Value = await request('/apis/authentication.k8s.io/v1/selfsubjectreviews', {
    method: 'POST', quiet: true,
    body: JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }),
  });
  return { username: review.status?.userInfo?.username ?? '', groups: review.status?.userInfo?.groups ?? [] };
}
