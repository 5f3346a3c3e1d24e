// The difference of two texts, line by line, with three lines around each change.

import { structuredPatch } from 'diff';
import type { JSX } from 'preact';
import type { KubeObject } from '../logic/kubernetes';
import { hidden, hiddenPair } from '../logic/secrets';
import { comparable, toYAML } from '../logic/yaml';

/** The time in milliseconds after which a comparison ends without a result: it holds up the page. */
const LONGEST = 2000;

/** ObjectDiff compares two versions of an object. before may be missing. Secret values are shown if the user has asked for them. */
export function ObjectDiff(props: {
  before: KubeObject | undefined;
  after: KubeObject;
  names: [string, string];
  values?: boolean;
}): JSX.Element {
  const { before, after, names, values } = props;
  const [b, a] = values ? [before, after] : before ? hiddenPair(before, after) : [undefined, hidden(after)];
  return <Diff before={b ? toYAML(comparable(b)) : ''} after={toYAML(comparable(a))} names={names} />;
}

function Diff({ before, after, names }: { before: string; after: string; names?: [string, string] }): JSX.Element {
  const patch = structuredPatch('a', 'b', before, after, '', '', { context: 3, timeout: LONGEST });
  if (!patch) return <p class="empty">The two are too large, and too different, to compare them line by line.</p>;
  if (!patch.hunks.length) return <p class="empty">No difference.</p>;
  return (
    <div class="diff" role="region" aria-label="Difference" tabIndex={0}>
      {names ? (
        <div class="diff-head">
          <span class="removed">− {names[0]}</span> <span class="added">+ {names[1]}</span>
        </div>
      ) : null}
      {patch.hunks.map((h) => (
        <div class="hunk" key={h.newStart}>
          <div class="at">{`line ${h.newStart}`}</div>
          {h.lines.map((line, i) => (
            <div key={i} class={line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : ''}>{line}</div>
          ))}
        </div>
      ))}
    </div>
  );
}
