// What the words of a status say: whether all is well.

import { textOf } from './format';
import type { Condition, KubeObject } from './kubernetes';
import type { Row } from './tables';
import { isMembers, listAt } from './values';

/** isFailing says whether a row tells of a problem: by its status column, or because less is ready than asked for. */
export function isFailing(row: Row, columns: { name: string }[]): boolean {
  if (row.object.metadata.deletionTimestamp) return true;
  for (const [i, column] of columns.entries()) {
    const name = column.name.toLowerCase();
    const value = String(row.cells[i] ?? '');
    if (name === 'ready' || name === 'completions') {
      const parts = /^(\d+)\/(\d+)$/.exec(value);
      if (parts && parts[1] !== parts[2]) return !row.cells.some((c) => c === 'Completed' || c === 'Complete');
      if (value === 'False') return true;
    }
    if (['status', 'phase', 'state', 'available', 'type', 'conditions'].includes(name)) {
      const tone = toneOf(value);
      if (name !== 'type' && (tone === 'bad' || tone === 'warn' || value.startsWith('False'))) return true;
      if (name === 'type' && value === 'Warning') return true;
    }
  }
  return false;
}

/** conditionsOf returns the conditions of an object that has any. */
export const conditionsOf = (object: KubeObject): Condition[] => listAt(object, 'status', 'conditions').filter(isMembers);

/** Conditions that tell of a problem when they are True. */
const BAD_WHEN_TRUE = /(Pressure|Failure|Failed|Stalled|Unavailable|Unreachable|Degraded|Remaining|Terminating|NonStructural|Disruption)/;

/** conditionTone is bad for a condition that does not hold, or that tells of a problem and holds. */
export function conditionTone(c: Condition): 'good' | 'bad' | 'warn' {
  if (c.status === 'Unknown') return 'warn';
  const bad = BAD_WHEN_TRUE.test(textOf(c.type));
  return (c.status === 'True') === bad ? 'bad' : 'good';
}

export type Tone = 'good' | 'bad' | 'warn' | 'idle';

/** toneOf says how a word of a status column looks. */
export function toneOf(text: string): Tone | undefined {
  if (/^(Running|Ready|Active|Bound|Available|Healthy|Complete|Completed|Succeeded|True|Established|Approved(,Issued)?)$/.test(text)) {
    return 'good';
  }
  if (/(Error|Failed|BackOff|Evicted|OOMKilled|NotReady|Lost|Invalid|Unknown|Denied|ErrImage)/.test(text)) return 'bad';
  if (/^(Pending|Terminating|ContainerCreating|Released|Progressing|Suspended|Init:|PodInitializing|SchedulingDisabled)/.test(text)) {
    return 'warn';
  }
  return undefined;
}
