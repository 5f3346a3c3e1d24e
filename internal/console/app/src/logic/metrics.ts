// Metrics of a server, from its text format (https://prometheus.io/docs/instrumenting/exposition_formats/).

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const MOST = 200_000;

/** parseMetrics returns the samples whose name is wanted, 200,000 at most. */
export function parseMetrics(text: string, wanted: (name: string) => boolean): Sample[] {
  const found: Sample[] = [];
  for (const line of text.split('\n')) {
    if (!line || line.startsWith('#')) continue;
    const end = line.search(/[{ ]/);
    const name = line.slice(0, end);
    if (!wanted(name)) continue;
    const labels: Record<string, string> = {};
    let rest = end;
    if (line[end] === '{') {
      const pattern = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?|\}/gy;
      pattern.lastIndex = end + 1;
      for (let m = pattern.exec(line); m?.[1]; m = pattern.exec(line)) {
        labels[m[1]] = (m[2] ?? '').replace(/\\(.)/g, (_, c: string) => (c === 'n' ? '\n' : c));
      }
      rest = line.lastIndexOf('}') + 1;
    }
    found.push({ name, labels, value: Number(line.slice(rest).trim().split(' ')[0]) });
    if (found.length >= MOST) break;
  }
  return found;
}

/** sums adds the samples of a name by some of their labels. */
export function sums(samples: Sample[], name: string, labels: string[]): Map<string, number> {
  const out = new Map<string, number>();
  for (const s of samples) {
    if (s.name !== name) continue;
    const key = labels.map((l) => s.labels[l] ?? '').join(' ');
    out.set(key, (out.get(key) ?? 0) + s.value);
  }
  return out;
}

export const one = (samples: Sample[], name: string): number | undefined => samples.find((s) => s.name === name)?.value;

/** quantiles estimates a quantile of histograms, by some of their labels. */
export function quantiles(samples: Sample[], name: string, labels: string[], q: number): Map<string, { value: number; count: number }> {
  const buckets = new Map<string, Map<number, number>>();
  for (const s of samples) {
    if (s.name !== `${name}_bucket`) continue;
    const key = labels.map((l) => s.labels[l] ?? '').join(' ');
    const at = s.labels.le === '+Inf' ? Infinity : Number(s.labels.le);
    const of = buckets.get(key) ?? new Map<number, number>();
    of.set(at, (of.get(at) ?? 0) + s.value);
    buckets.set(key, of);
  }
  const out = new Map<string, { value: number; count: number }>();
  for (const [key, of] of buckets) {
    const sorted = [...of].sort(([a], [b]) => a - b);
    const count = sorted[sorted.length - 1]?.[1] ?? 0;
    if (!count) continue;
    let below = 0;
    let last = 0;
    let value = NaN;
    for (const [le, n] of sorted) {
      if (n >= q * count) {
        value = le === Infinity ? last : last + ((le - last) * (q * count - below)) / Math.max(1, n - below);
        break;
      }
      below = n;
      last = le;
    }
    out.set(key, { value, count });
  }
  return out;
}

/**
 * queued counts the requests in the queues of API Priority and Fairness by user and flow schema. text is what
 * /debug/api_priority_and_fairness/dump_requests answers: lines of columns that are separated by commas.
 */
export function queued(text: string): Map<string, number> | undefined {
  const [head = [], ...rows] = text.trim().split('\n').map((line) => line.split(/, */));
  const user = head.indexOf('UserName');
  const flow = head.indexOf('FlowSchemaName');
  if (user < 0 || flow < 0) return undefined;
  const found = new Map<string, number>();
  for (const row of rows) {
    // A name with a comma moves what follows.
    const key = row.length === head.length ? `${row[user]} (${row[flow]})` : `another user (${row[flow]})`;
    found.set(key, (found.get(key) ?? 0) + 1);
  }
  return found;
}
