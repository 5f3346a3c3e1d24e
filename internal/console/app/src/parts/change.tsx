// A change of an object in a list of changes.

import type { JSX } from 'preact';
import type { Change } from '../logic/changes';
import type { Tone } from '../logic/status';
import { Badge } from './ui';

const TONES: Record<string, Tone> = { Created: 'good', Updated: 'idle', Deleted: 'bad', Expired: 'warn' };

export const changeBadge = (c: Change): JSX.Element => <Badge tone={TONES[c.type] ?? 'idle'}>{c.type}</Badge>;

export function changedText(c: Change): JSX.Element {
  const paths = c.changed ?? [];
  const shown = paths.slice(0, 4);
  const more = paths.length - shown.length + (c.moreChanged ?? 0);
  return (
    <span title={paths.join('\n')}>
      {shown.map((p) => <code key={p} class="path">{p}</code>)}
      {more > 0 ? <span class="dim"> and {more} more</span> : null}
    </span>
  );
}
