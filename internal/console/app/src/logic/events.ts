// Events, and which of them say the same.

import type { Value } from './kubernetes';

export const timeOf = (e: Value): string => e.series?.lastObservedTime ?? e.lastTimestamp ?? e.eventTime ?? e.metadata?.creationTimestamp ?? '';

/** Warning is a number of Events that say the same of objects of a kind. */
interface Warning {
  newest: Value;
  objects: Set<string>;
  count: number;
}

export const aboutOf = (e: Value): Value => e.involvedObject ?? e.regarding ?? {};

/** grouped returns what Events tell, the newest first. */
export function grouped(events: Iterable<Value>): Warning[] {
  const found = new Map<string, Warning>();
  for (const e of events) {
    const o = aboutOf(e);
    const key = JSON.stringify([o.kind, e.reason, e.message ?? e.note]);
    const w = found.get(key) ?? { newest: e, objects: new Set(), count: 0 };
    found.set(key, w);
    if (timeOf(e) > timeOf(w.newest)) w.newest = e;
    w.objects.add(JSON.stringify([o.namespace, o.name]));
    w.count += Number(e.series?.count ?? e.count ?? 1) || 1;
  }
  return [...found.values()].sort((x, y) => timeOf(y.newest).localeCompare(timeOf(x.newest)));
}
