// Events, and which of them say the same.

import type { KubeObject } from './kubernetes';

/** KubeEvent is an Event of the core group or of events.k8s.io, whose names differ. */
export interface KubeEvent extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  note?: string;
  count?: number;
  lastTimestamp?: string | null;
  eventTime?: string | null;
  series?: { count?: number; lastObservedTime?: string } | null;
  involvedObject?: ObjectReference;
  regarding?: ObjectReference;
  reportingComponent?: string;
  source?: { component?: string };
}

export interface ObjectReference {
  apiVersion?: string;
  kind?: string;
  namespace?: string;
  name?: string;
}

/** timeOf returns when an Event was seen last. */
export const timeOf = (e: KubeEvent): string => e.series?.lastObservedTime ?? e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp ?? '';

/** newestFirst compares Events. */
export const newestFirst = (a: KubeEvent, b: KubeEvent): number => timeOf(b).localeCompare(timeOf(a));

/** countOf returns how often an Event was seen. */
export const countOf = (e: KubeEvent): number => (e.series?.count ?? e.count) || 1;

/** Warning is a number of Events that say the same of objects of a kind. */
interface Warning {
  newest: KubeEvent;
  objects: Set<string>;
  count: number;
}

export const aboutOf = (e: KubeEvent): ObjectReference => e.involvedObject ?? e.regarding ?? {};

/** grouped returns what Events tell, the newest first. */
export function grouped(events: Iterable<KubeEvent>): Warning[] {
  const found = new Map<string, Warning>();
  for (const e of events) {
    const o = aboutOf(e);
    const key = JSON.stringify([o.kind, e.reason, e.message ?? e.note]);
    const w = found.get(key) ?? { newest: e, objects: new Set(), count: 0 };
    found.set(key, w);
    if (timeOf(e) > timeOf(w.newest)) w.newest = e;
    w.objects.add(JSON.stringify([o.namespace, o.name]));
    w.count += countOf(e);
  }
  return [...found.values()].sort((x, y) => newestFirst(x.newest, y.newest));
}
