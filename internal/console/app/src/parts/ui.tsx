// Small parts that all views are made of.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { age, local } from '../logic/format';
import { APIError, messageOf } from '../logic/kubernetes';
import type { Reference } from '../logic/references';
import type { Tone } from '../logic/status';

/** What is called each second while the page is looked at. */
const clock = new Set<() => void>();

setInterval(() => document.hidden || clock.forEach((tick) => tick()), 1000);

/** Age shows how long ago a time is, and the time itself on hover. It is drawn again when its text changes. */
export function Age({ time }: { time: string | undefined }): JSX.Element {
  const [, shown] = useState('');
  useEffect(() => {
    const tick = (): void => shown(age(time));
    clock.add(tick);
    return () => void clock.delete(tick);
  }, [time]);
  return <time dateTime={time} title={local(time)}>{age(time)}</time>;
}

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** Problem shows the error of a request, with its causes. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }): JSX.Element | null {
  if (!error) return null;
  const status = error instanceof APIError ? error.status : {};
  return (
    <div class="problem" role="alert">
      <strong>{error instanceof APIError ? `${error.code} ${status.reason ?? ''}` : 'Error'}</strong>
      <p>{messageOf(error)}</p>
      {status.details?.causes?.length ? (
        <ul>
          {status.details.causes.map((c, i) => (
            <li key={i}>
              {c.field ? <code>{c.field}</code> : null} {c.message}
            </li>
          ))}
        </ul>
      ) : null}
      {retry ? <button onClick={retry}>Try again</button> : null}
    </div>
  );
}

/** TextField is a field whose text counts when it is left, or at Enter. What is typed until then stays when the view is drawn again. */
export function TextField({ value, change, ...rest }: {
  value: string;
  change: (text: string) => void;
  id?: string;
  list?: string;
  size?: number;
  placeholder?: string;
  'aria-label'?: string;
  onFocus?: (e: { currentTarget: HTMLInputElement }) => void;
}): JSX.Element {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  return (
    <input
      {...rest}
      type="text"
      spellcheck={false}
      value={text}
      onInput={(e) => setText(e.currentTarget.value)}
      onChange={(e) => change(e.currentTarget.value.trim())}
    />
  );
}

/** Check is a box to tick. */
export function Check(props: { checked: boolean; change: (on: boolean) => void; title?: string; children: string }): JSX.Element {
  return (
    <label class="check" title={props.title}>
      <input type="checkbox" checked={props.checked} onChange={(e) => props.change(e.currentTarget.checked)} /> {props.children}
    </label>
  );
}

export const Busy = ({ what }: { what: string }): JSX.Element => <p class="busy" role="status">{what}</p>;

export interface TabItem {
  id: string;
  title: string;
  href: string;
}

export function Tabs({ items, selected, label }: { items: TabItem[]; selected: string; label: string }): JSX.Element {
  return (
    <nav class="tabs" aria-label={label}>
      {items.map((t) => <a key={t.id} href={t.href} aria-current={t.id === selected ? 'page' : undefined}>{t.title}</a>)}
    </nav>
  );
}

/** Dialog is a modal window. Escape and a click beside it close it. */
export function Dialog(props: { title: string; close: () => void; wide?: boolean; children: ComponentChildren }): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog?.showModal(); // at once: keys that follow are for the dialog
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={ref}
      class={props.wide ? 'wide' : ''}
      aria-label={props.title}
      onCancel={(e) => {
        e.preventDefault();
        props.close();
      }}
      onMouseDown={(e) => e.target === ref.current && props.close()}
    >
      <header><h2>{props.title}</h2><button class="quiet" aria-label="Close" onClick={props.close}>✕</button></header>
      <div class="dialog-body">{props.children}</div>
    </dialog>
  );
}

/** Facts is a list of names and values. */
export function Facts({ items }: { items: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {items.filter(([, v]) => v !== undefined && v !== null && v !== '' && v !== false)
        .map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

/** Chips shows labels or annotations. */
export function Chips({ values, href }: {
  values: Record<string, string> | undefined;
  href?: (key: string, value: string) => string;
}): JSX.Element | null {
  const all = Object.entries(values ?? {});
  if (!all.length) return null;
  return (
    <ul class="chips">
      {all.map(([key, value]) => (
        <li key={key}>
          {href ? <a href={href(key, value)}>{`${key}=${value}`}</a> : <span title={`${key}=${value}`}>{`${key}=${value}`}</span>}
        </li>
      ))}
    </ul>
  );
}

/** SimpleTable is a small table that is not live. */
export function SimpleTable({ head, rows, empty, label }: {
  head: string[];
  rows: ComponentChildren[][];
  empty: string;
  label: string;
}): JSX.Element {
  if (!rows.length) return <p class="empty">{empty}</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class="plain">
        <thead><tr>{head.map((h) => <th key={h} scope="col">{h}</th>)}</tr></thead>
        <tbody>{rows.map((cells, i) => <tr key={i}>{cells.map((c, j) => <td key={j}>{c}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

/** References is a list of the objects that an object refers to. */
export function References({ references }: { references: Reference[] }): JSX.Element | null {
  if (!references.length) return null;
  return (
    <>
      <h2>Refers to</h2>
      <ul class="links">
        {references.map((r) => (
          <li key={r.href}>
            <a href={r.href}>{r.text}</a> <span class="dim">{r.where}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** ContainerPicker is the choice of a container of a pod. */
export function ContainerPicker(props: { containers: string[]; value: string; change: (name: string) => void }): JSX.Element {
  return (
    <label>
      Container{' '}
      <select value={props.value} onChange={(e) => props.change(e.currentTarget.value)}>
        {props.containers.map((c) => <option key={c}>{c}</option>)}
      </select>
    </label>
  );
}
