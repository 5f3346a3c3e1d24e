// What an object belongs to, what belongs to it, and what it refers to.

import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { chainOfOwners, dependentsOf, SKIPPED_TEXT, type GraphNode } from '../../client/relations';
import type { KubeObject } from '../../logic/kubernetes';
import { referencesOf } from '../../logic/references';
import type { Resource } from '../../logic/resources';
import { useApp, useLoaded } from '../../parts/app';
import { Busy, Problem, References } from '../../parts/ui';

export function Related({ resource, object }: { resource: Resource; object: KubeObject }): JSX.Element {
  const app = useApp();
  const m = object.metadata;
  const owners = useLoaded(async (signal) => chainOfOwners(app.discovery, object, signal), [m.uid]);
  const dependents = useLoaded(async (signal) => dependentsOf(app.discovery, resource, object, signal), [m.uid]);
  const references = useMemo(() => referencesOf(object, app.discovery), [object, app.discovery]);
  return (
    <div class="related">
      {owners.error ? <Problem error={owners.error} /> : null}
      {dependents.error ? <Problem error={dependents.error} retry={dependents.reload} /> : null}
      {dependents.loading && !dependents.value ? <Busy what="Looking for what belongs to it" /> : null}
      <Graph
        levels={[
          ...(owners.value ?? []),
          [{ label: m.name ?? '', kind: resource.kind, href: '', uid: m.uid ?? '', owners: m.ownerReferences?.map((o) => o.uid) ?? [] }],
          ...(dependents.value?.levels ?? []),
        ]}
      />
      {dependents.value && !dependents.value.levels.length ? (
        <p class="empty">{Object.keys(dependents.value.left).some((why) => why !== SKIPPED_TEXT) ? 'Nothing was found that belongs to it.' : 'Nothing belongs to it.'}</p>
      ) : null}
      {Object.entries(dependents.value?.left ?? {}).map(([why, resources]) =>
        resources.length ? <p class="dim" key={why}>{`${why}: ${resources.join(', ')}`}</p> : null,
      )}
      <References references={references} />
    </div>
  );
}

const WIDTH = 210;
const HEIGHT = 40;
const GAP_X = 70;
const GAP_Y = 12;
const SHOWN = 60;

/** Graph draws levels of objects from left to right: owners, the object, and what belongs to it. */
function Graph({ levels }: { levels: GraphNode[][] }): JSX.Element {
  const shown = levels.filter((l) => l.length).map((l) => l.slice(0, SHOWN));
  const tallest = Math.max(1, ...shown.map((l) => l.length));
  const height = tallest * (HEIGHT + GAP_Y) + GAP_Y;
  const width = shown.length * (WIDTH + GAP_X);
  const position = (level: number, i: number): { x: number; y: number } => ({
    x: level * (WIDTH + GAP_X) + 10,
    y: (height - (shown[level]?.length ?? 0) * (HEIGHT + GAP_Y)) / 2 + i * (HEIGHT + GAP_Y) + GAP_Y / 2,
  });
  const hidden = levels.reduce((n, l) => n + Math.max(0, l.length - SHOWN), 0);
  return (
    <div class="graph scroll" tabIndex={0} role="region" aria-label="Owners and dependents">
      <svg width={width} height={height} role="list" aria-label="Objects">
        {shown.slice(1).flatMap((level, l) =>
          level.flatMap((n, i) =>
            shown[l]?.map((above, j) => {
              if (!n.owners.includes(above.uid)) return null;
              const from = position(l, j);
              const to = position(l + 1, i);
              const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
              return <path key={`${l}-${i}-${j}`} class="edge" d={`M${x1},${y1} C${x1 + GAP_X / 2},${y1} ${x2 - GAP_X / 2},${y2} ${x2},${y2}`} />;
            }),
          ),
        )}
        {shown.flatMap((level, l) =>
          level.map((n, i) => {
            const at = position(l, i);
            const box = (
              <g transform={`translate(${at.x},${at.y})`} class={n.href ? 'node' : 'node self'}>
                <rect width={WIDTH} height={HEIGHT} rx={5} />
                <text x={10} y={16} class="node-kind">{n.kind}</text>{' '}
                <text x={10} y={31}>{n.label.length > 30 ? `${n.label.slice(0, 29)}…` : n.label}</text>
              </g>
            );
            return (
              <g role="listitem" key={n.uid || `${l}-${i}`}>
                {n.href ? <a href={n.href} aria-label={`${n.kind} ${n.label}`}>{box}</a> : (
                  box
                )}
              </g>
            );
          }),
        )}
      </svg>
      {hidden ? <p class="dim">{hidden} more are not drawn.</p> : null}
    </div>
  );
}
