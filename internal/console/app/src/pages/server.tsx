// The server itself: what it is, its store, its requests, and what its memory is used for. The figures are from /metrics.

import type { JSX } from 'preact';
import { health, metrics, waiting } from '../client/server';
import { bytes, local, seconds } from '../logic/format';
import { one, quantiles, sums, type Sample } from '../logic/metrics';
import { useApp, useEvery, useLoaded } from '../parts/app';
import { Badge, Busy, Facts, Problem, SimpleTable } from '../parts/ui';

const WANTED =
  /^(keelson_|process_(resident_memory_bytes|cpu_seconds_total|start_time_seconds)|go_(memstats_heap|goroutines)|apiserver_(request_total|request_duration_seconds_bucket|storage_size_bytes|storage_objects|current_inflight_requests|flowcontrol_(dispatched_requests_total|rejected_requests_total|current_inqueue_requests|current_executing_requests)|longrunning_requests|audit_event_total))/;

export function Server(): JSX.Element {
  const app = useApp();
  const loaded = useLoaded(async (signal) => {
    const [samples, ready, queued] = await Promise.all([
      metrics((n) => WANTED.test(n), signal), health('/readyz?verbose', signal), waiting(signal),
    ]);
    return { samples, ready, queued };
  }, []);
  useEvery(10_000, loaded.reload);
  return (
    <section class="server">
      <header class="bar"><h1>Server</h1><span class="space" /><button onClick={loaded.reload}>Read again</button></header>
      <Facts
        items={[
          ['Version', app.server.gitVersion],
          ['Built', app.server.raw.buildDate?.startsWith('1970') ? '' : app.server.raw.buildDate],
          ['Go', app.server.raw.goVersion],
          ['Platform', app.server.raw.platform],
          ['Emulates', app.server.raw.emulationMajor ? `${app.server.raw.emulationMajor}.${app.server.raw.emulationMinor}` : ''],
          ['Address', app.config.server ?? location.origin],
        ]}
      />
      {loaded.error ? <Problem error={loaded.error} retry={loaded.reload} /> : null}
      {!loaded.value && !loaded.error ? <Busy what="Reading its metrics" /> : null}
      {loaded.value ? <Figures {...loaded.value} /> : null}
    </section>
  );
}

function Figures({
  samples, ready, queued,
}: { samples: Sample[]; ready: { ok: boolean; text: string }; queued: Map<string, number> | undefined }): JSX.Element {
  const size = samples.find((s) => s.name === 'apiserver_storage_size_bytes')?.value;
  const value = (name: string): number | undefined => one(samples, name);
  const show = (n: number | undefined, text: (n: number) => string): string => (n === undefined ? '' : text(n));
  const start = value('process_start_time_seconds');
  const snapshot = value('keelson_snapshot_last_success_timestamp_seconds');
  const cache = sums(samples, 'keelson_cache_bytes', ['resource', 'group']);
  const objects = sums(samples, 'apiserver_storage_objects', ['resource']);
  const requests = sums(samples, 'apiserver_request_total', ['verb', 'resource', 'group']);
  const failures = samples.filter((s) => s.name === 'apiserver_request_total' && Number(s.labels.code) >= 500)
    .reduce((n, s) => n + s.value, 0);
  const slow = [...quantiles(samples, 'apiserver_request_duration_seconds', ['verb', 'resource', 'subresource'], 0.99)]
    .filter(([key]) => !/^(WATCH|CONNECT)/.test(key))
    .sort(([, a], [, b]) => b.value - a.value)
    .slice(0, 12);
  const flows = sums(samples, 'apiserver_flowcontrol_dispatched_requests_total', ['flow_schema', 'priority_level']);
  const rejected = sums(samples, 'apiserver_flowcontrol_rejected_requests_total', ['flow_schema', 'priority_level']);
  const top = (m: Map<string, number>, n: number): [string, number][] => [...m].sort(([, a], [, b]) => b - a).filter(([, v]) => v > 0).slice(0, n);
  const checks = ready.text.split('\n').filter((l) => l.startsWith('[-]') || l.startsWith('[!]'));
  return (
    <>
      <div class="columns">
        <div>
          <h2>State</h2>
          <Facts
            items={[
              ['Ready', <Badge tone={ready.ok ? 'good' : 'bad'}>{ready.ok ? 'yes' : 'no'}</Badge>],
              ['Not right', checks.join('; ')],
              ['Runs since', show(start, (n) => local(new Date(n * 1000).toISOString()))],
              ['Memory', show(value('process_resident_memory_bytes'), bytes)],
              ['Processor time', show(value('process_cpu_seconds_total'), seconds)],
              ['Goroutines', show(value('go_goroutines'), String)],
              ['Answers 5xx', String(failures)],
            ]}
          />
        </div>
        <div>
          <h2>Store</h2>
          <Facts
            items={[
              ['Size', show(size, bytes)],
              ['History', show(value('keelson_history_bytes'), (n) => `${bytes(n)} before compression`)],
              ['Free on the disk', show(value('keelson_storage_available_bytes'), bytes)],
              ['Refused writes', show(value('keelson_storage_refused_writes_total'), String)],
              ['Last backup', show(snapshot, (n) => (n ? local(new Date(n * 1000).toISOString()) : 'never'))],
              ['Cache budget', show(value('keelson_cache_budget_bytes'), bytes)],
            ]}
          />
        </div>
      </div>
      <div class="columns">
        <div>
          <h2>Most objects</h2>
          <SimpleTable label="Objects" empty="No figures." head={['Resource', 'Objects']} rows={top(objects, 12).map(([k, n]) => [k, String(n)])} />
          {cache.size ? (
            <>
              <h2>Memory of the caches</h2>
              <SimpleTable label="Caches" empty="No figures." head={['Resource', 'Memory']} rows={top(cache, 12).map(([k, n]) => [k, bytes(n)])} />
            </>
          ) : null}
        </div>
        <div>
          <h2>Most requests</h2>
          <SimpleTable label="Requests" empty="No figures." head={['Verb and resource', 'Requests']} rows={top(requests, 12).map(([k, n]) => [k, String(n)])} />
        </div>
        <div>
          <h2>Slowest requests</h2>
          <SimpleTable
            label="Slowest requests"
            empty="No figures."
            head={['Verb and resource', '99 %', 'Requests']}
            rows={slow.map(([k, v]) => [k, seconds(v.value), String(v.count)])}
          />
        </div>
        <div>
          <h2>Flows</h2>
          <SimpleTable
            label="Flows"
            empty="No figures."
            head={['Flow schema and priority level', 'Requests', 'Refused']}
            rows={top(flows, 12).map(([k, n]) => [k, String(n), String(rejected.get(k) ?? 0)])}
          />
          {queued ? (
            <>
              <h2>Requests that wait</h2>
              <SimpleTable
                label="Requests that wait"
                empty="None."
                head={['User and flow schema', 'Requests']}
                rows={top(queued, 12).map(([k, n]) => [k, String(n)])}
              />
            </>
          ) : null}
        </div>
      </div>
    </>
  );
}
