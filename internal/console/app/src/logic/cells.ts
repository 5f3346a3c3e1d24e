// What the text in a cell of a Table means: servers write times as how long ago they were, and quantities with units.

import type { Column } from './kubernetes';

const DURATION = /^(?:(\d+)y)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/;
const SECONDS = [365 * 24 * 3600, 24 * 3600, 3600, 60, 1];

/** Durations from here on are taken for text: what they ended may be out of the range of times. */
const LONGEST = 1e11;

/** durationOf returns the seconds of a duration as Kubernetes writes it: 3d4h, 5m30s. It is undefined for other text. */
export function durationOf(text: string): number | undefined {
  const parts = text ? DURATION.exec(text) : null;
  const seconds = parts ? SECONDS.reduce((sum, unit, i) => sum + unit * Number(parts[i + 1] ?? 0), 0) : Infinity;
  return seconds < LONGEST ? seconds : undefined;
}

/** isSince tells whether the durations in a column are how long ago something was, so that they grow. */
export const isSince = (c: Pick<Column, 'name' | 'type'>): boolean => c.type === 'date' || /^(age|since|(first|last)\b.*)$/i.test(c.name);

/** AGO is a time in a text: 3 (5m ago). */
export const AGO = /\((\w+) ago\)/;

/** sinceOf returns the time, in milliseconds, at which something was that a cell of a column said to be long ago at another time. */
export function sinceOf(c: Pick<Column, 'name' | 'type'>, text: string, at: number): number | undefined {
  const seconds = isSince(c) ? durationOf(text) : undefined;
  return seconds === undefined ? undefined : at - 1000 * seconds;
}

const UNITS: Record<string, number> = {
  '': 1, '%': 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** Columns in which 5m are minutes, and no quantity. */
const OF_TIME = /age|time|duration|since|seen|schedule|period|first|last/i;

/**
 * sortKey returns what a cell is sorted by: a number for what stands for one, otherwise the text. It is undefined for no value. at is when
 * the server sent the cell.
 */
export function sortKey(c: Pick<Column, 'name' | 'type'>, cell: unknown, at: number): unknown {
  if (typeof cell !== 'string') return cell ?? undefined;
  if (/^(<(none|unknown|invalid|unset)>)?$/.test(cell)) return undefined;
  const since = sinceOf(c, cell, at);
  if (since !== undefined) return -since;
  const quantity = /^([+-]?\d+(?:\.\d+)?)([a-zA-Z%]*)$/.exec(cell);
  const unit = quantity && UNITS[quantity[2] ?? ''];
  if (quantity && unit && !(quantity[2] === 'm' && OF_TIME.test(c.name))) return Number(quantity[1]) * unit;
  const duration = durationOf(cell);
  if (duration !== undefined) return duration;
  const counted = /^(\d+) \(/.exec(cell); // restarts: 3 (5m ago)
  if (counted) return Number(counted[1]);
  return /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(cell) ? Date.parse(cell) : cell;
}
