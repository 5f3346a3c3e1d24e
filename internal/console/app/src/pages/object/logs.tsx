// The log of a container: followed, searched, with escape sequences of terminals removed.

import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { send } from '../../client/request';
import { lines } from '../../client/watch';
import { isAbort, type KubeObject } from '../../logic/kubernetes';
import { query } from '../../logic/links';
import { containersOf, plain } from '../../logic/logs';
import { Check, ContainerPicker, Problem } from '../../parts/ui';

/** The page keeps this many lines. */
const KEPT = 5000;

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
    run().then(() => stop.signal.aborted || setEnded(true), (e: unknown) => isAbort(e) || stop.signal.aborted || setError(e));
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
        <ContainerPicker containers={containers} value={container} change={setContainer} />
        <input type="search" aria-label="Search the log" placeholder="Search" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
        <Check checked={follow} change={setFollow}>Follow</Check>
        <Check checked={previous} change={setPrevious}>Before the last restart</Check>
        <Check checked={times} change={setTimes}>Times</Check>
        <span class="dim" role="status">
          {search ? `${found.length} of ${shown.length} lines` : `${shown.length} lines`}
          {ended ? ', ended' : ''}
        </span>
      </div>
      {error ? <Problem error={error} /> : null}
      <pre ref={box} class="log" tabIndex={0} role="log" aria-label={`Log of ${container}`}>{found.join('\n')}</pre>
    </div>
  );
}
