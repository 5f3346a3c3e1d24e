// Messages at the edge of the page.

import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { isAbort, messageOf } from '../logic/kubernetes';

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

/** attempt runs an action of the user and shows its error. */
export async function attempt(what: string, action: () => unknown): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (e) {
    if (!isAbort(e)) toast('error', `${what}: ${messageOf(e)}`);
    return false;
  }
}

export function Toasts(): JSX.Element {
  const toasts = useToasts();
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map((t) => (
        <div key={t.id} class={`toast ${t.kind}`}>
          <span>{t.text}</span>
          <button class="quiet" aria-label="Dismiss" onClick={() => dismiss(t.id)}>✕</button>
        </div>
      ))}
    </div>
  );
}
