// The log of a container: followed, searched, with escape sequences of terminals removed.

import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { isAbort, lines, query, send, type KubeObject, type Value } from './api';
import { Problem } from './ui';

/** The page keeps this many lines. */
const KEPT = 5000;

/** A line is cut after this many characters. */
const LONGEST = 20_000;

/** plain removes escape sequences and other control characters: a log must not draw on the page or hide text in it. */
export function plain(text: string): string {
  return (text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text)
    .replace(/\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?/g, '') // OSC
    .replace(/\u001b[[(][0-?]*[ -/]*[@-~]?/g, '') // CSI
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, '');
}

export function containersOf(pod: KubeObject): string[] {
  const names = (list: Value): string[] => (Array.isArray(list) ? list.map((c) => String(c?.name ?? '')) : []);
  return [...names(pod.spec?.containers), ...names(pod.spec?.initContainers), ...names(pod.spec?.ephemeralContainers)];
}

export function Logs({ pod }: { pod: KubeObject }): JSX.Element {
  const containers = containersOf(pod);
  const [container, setContainer] = useState(containers[0] ?? '');
  const [follow, setFollow] = useState(true);
  const [previous, setPrevious] = useState(false);
  const [times, setTimes] = useState(false);
  const [search, setSearch] = useState('');
  const [shown, setShown] = useState<string[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [ended, setEnded] = useState(false);
  const box = useRef<HTMLPreElement>(null);
  const m = pod.metadata;
  useEffect(() => {
    const stop = new AbortController();
    let kept: string[] = [];
    let scheduled = false;
    setShown([]);
    setError(null);
    setEnded(false);
    const show = (): void => {
      if (scheduled) return;
      scheduled = true;
      requestAnimationFrame(() => {
        scheduled = false;
        if (!stop.signal.aborted) setShown(kept);
      });
    };
    const path = `/api/v1/namespaces/${encodeURIComponent(m.namespace ?? '')}/pods/${encodeURIComponent(m.name ?? '')}/log`;
    const run = async (): Promise<void> => {
      const response = await send(path + query({ container, follow: follow && !previous, previous, timestamps: times, tailLines: 1000 }), {
        signal: stop.signal, accept: '*/*',
      });
      if (!response.body) return;
      for await (const line of lines(response.body)) {
        kept = kept.length >= KEPT ? [...kept.slice(kept.length - KEPT + 500), plain(line)] : (kept.push(plain(line)), [...kept]);
        show();
      }
    };
    run().then(
      () => stop.signal.aborted || setEnded(true),
      (e: unknown) => isAbort(e) || stop.signal.aborted || setError(e),
    );
    return () => stop.abort();
  }, [m.uid, container, follow, previous, times]);
  const found = useMemo(() => {
    const text = search.toLowerCase();
    return text ? shown.filter((l) => l.toLowerCase().includes(text)) : shown;
  }, [shown, search]);
  useEffect(() => {
    const element = box.current;
    if (element && follow) element.scrollTop = element.scrollHeight;
  }, [found, follow]);
  return (
    <div class="logs">
      <div class="bar">
        <label>
          Container{' '}
          <select value={container} onChange={(e) => setContainer(e.currentTarget.value)}>
            {containers.map((c) => (
              <option key={c}>{c}</option>
            ))}
          </select>
        </label>
        <input type="search" aria-label="Search the log" placeholder="Search" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
        <label class="check">
          <input type="checkbox" checked={follow} onChange={(e) => setFollow(e.currentTarget.checked)} /> Follow
        </label>
        <label class="check">
          <input type="checkbox" checked={previous} onChange={(e) => setPrevious(e.currentTarget.checked)} /> Before the last restart
        </label>
        <label class="check">
          <input type="checkbox" checked={times} onChange={(e) => setTimes(e.currentTarget.checked)} /> Times
        </label>
        <span class="dim" role="status">
          {search ? `${found.length} of ${shown.length} lines` : `${shown.length} lines`}
          {ended ? ', ended' : ''}
        </span>
      </div>
      {error ? <Problem error={error} /> : null}
      <pre ref={box} class="log" tabIndex={0} role="log" aria-label={`Log of ${container}`}>
        {found.join('\n')}
      </pre>
    </div>
  );
}
