// What an object belongs to, what belongs to it, and what it refers to.

import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { APIError, messageOf, query, request, requestList, type KubeObject, type Value } from './api';
import { useApp, useLoaded } from './app';
import { findByKey, findByKind, hasVerb, keyOf, listPath, objectPath, type Discovery, type Resource } from './discovery';
import { objectLink } from './router';
import { Busy, Problem } from './ui';

export interface Reference {
  text: string;
  where: string;
  href: string;
}

/** Members of a spec that name an object of a kind: [member, kind, where the name is]. */
const NAMED: [RegExp, string][] = [
  [/^(configMapRef|configMapKeyRef|configMap)$/, 'configmaps'],
  [/^(secretRef|secretKeyRef|secret|certificateSecretRef|secretStoreRef)$/, 'secrets'],
  [/^imagePullSecrets$/, 'secrets'],
  [/^persistentVolumeClaim$/, 'persistentvolumeclaims'],
];

/** Members of a spec whose text is the name of an object. */
const TEXTS: Record<string, string> = {
  serviceAccountName: 'serviceaccounts',
  secretName: 'secrets',
  claimName: 'persistentvolumeclaims',
  volumeName: 'persistentvolumes',
  storageClassName: 'storageclasses.storage.k8s.io',
  priorityClassName: 'priorityclasses.scheduling.k8s.io',
  runtimeClassName: 'runtimeclasses.node.k8s.io',
  ingressClassName: 'ingressclasses.networking.k8s.io',
  nodeName: 'nodes',
  serviceName: 'services',
};

const MOST = 100;

/** referencesOf finds the objects that a spec names, with links. It reads nothing from the server. */
export function referencesOf(object: KubeObject, d: Discovery): Reference[] {
  const found = new Map<string, Reference>();
  const add = (r: Resource | undefined, namespace: string | undefined, name: unknown, where: string): void => {
    if (!r || typeof name !== 'string' || !name || found.size >= MOST) return;
    const href = objectLink(r, r.namespaced ? namespace : undefined, name);
    if (!found.has(href)) found.set(href, { text: `${r.kind} ${name}`, where, href });
  };
  const visit = (value: Value, path: string, depth: number): void => {
    if (!value || typeof value !== 'object' || depth > 14) return;
    if (Array.isArray(value)) {
      for (const [i, v] of value.slice(0, 200).entries()) visit(v, `${path}[${i}]`, depth + 1);
      return;
    }
    const namespace = object.metadata.namespace;
    if (typeof value.kind === 'string' && typeof value.name === 'string') {
      const version = value.apiVersion ?? (value.apiGroup ? `${value.apiGroup}/` : undefined);
      const r =
        version === undefined
          ? d.resources.find((one) => one.kind === value.kind)
          : d.resources.find((one) => one.kind === value.kind && one.group === String(version).split('/')[0].replace(/^v\d.*$/, ''));
      add(r, value.namespace ?? namespace, value.name, path);
    }
    for (const [key, v] of Object.entries(value)) {
      const here = `${path}.${key}`;
      const text = TEXTS[key];
      if (text) add(findByKey(d, text), namespace, v, here);
      for (const [pattern, kind] of NAMED) {
        if (!pattern.test(key)) continue;
        for (const one of Array.isArray(v) ? v : [v]) add(findByKey(d, kind), namespace, one?.name ?? one?.secretName, here);
      }
      visit(v, here, depth + 1);
    }
  };
  visit({ spec: object.spec, roleRef: object.roleRef, subjects: object.subjects, webhooks: object.webhooks }, '', 0);
  for (const o of object.metadata.ownerReferences ?? []) {
    add(findByKind(d, o.apiVersion, o.kind), object.metadata.namespace, o.name, '.metadata.ownerReferences');
  }
  return [...found.values()];
}

interface GraphNode {
  label: string;
  kind: string;
  href: string;
  uid: string;
  /** UIDs of the owners to which a line is drawn. */
  owners: string[];
}

const PARTIAL = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json';

/** Levels of owners, and of dependents, that are looked for. */
const DEPTH = 6;

/** Resources whose objects are not looked at: they are many, and seldom of interest as dependents. */
const SKIPPED = new Set(['endpoints', 'events', 'events.events.k8s.io', 'leases.coordination.k8s.io', 'componentstatuses']);
const SKIPPED_TEXT = 'Not looked at';

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
      {references.length ? (
        <>
          <h2>Refers to</h2>
          <ul class="links">
            {references.map((r) => (
              <li key={r.href}>
                <a href={r.href}>{r.text}</a> <span class="dim">{r.where}</span>
              </li>
            ))}
          </ul>
        </>
      ) : null}
    </div>
  );
}

async function chainOfOwners(d: Discovery, object: KubeObject, signal: AbortSignal): Promise<GraphNode[][]> {
  const levels: GraphNode[][] = [];
  let at: KubeObject | undefined = object;
  for (let depth = 0; depth < DEPTH && at; depth++) {
    const owners = at.metadata.ownerReferences ?? [];
    if (!owners.length) break;
    let next: KubeObject | undefined;
    const level: GraphNode[] = [];
    for (const o of owners.slice(0, 20)) {
      const r = findByKind(d, o.apiVersion, o.kind);
      const namespace = r?.namespaced ? object.metadata.namespace : undefined;
      const node: GraphNode = { label: o.name, kind: o.kind, href: r ? objectLink(r, namespace, o.name) : '', uid: o.uid, owners: [] };
      level.push(node);
      if (r && !next) {
        next = await request<KubeObject>(objectPath(r, namespace, o.name), { signal, quiet: true }).catch(() => undefined);
        node.owners = next?.metadata.ownerReferences?.map((above) => above.uid) ?? [];
      }
    }
    levels.unshift(level);
    at = next;
  }
  return levels;
}

/** MOST_LOOKED_AT is how many objects of a resource are looked at. An API server has no index of owners that a client could ask. */
const MOST_LOOKED_AT = 50_000;
const PAGE = 1000;

/** The resources that were not looked at, or not at all of their objects, by the reason. */
type Left = Record<string, string[]>;

/** dependentsOf lists the metadata of what may belong to an object, and returns what does, level by level. It is bounded. */
async function dependentsOf(
  d: Discovery, resource: Resource, object: KubeObject, signal: AbortSignal,
): Promise<{ levels: GraphNode[][]; left: Left }> {
  const byOwner = new Map<string, GraphNode[]>();
  const left: Left = {};
  const leave = (why: string, what: string): void => void (left[why] ??= []).push(what);
  const queue = d.resources.filter((r) => {
    if (!hasVerb(r, 'list') || (resource.namespaced && !r.namespaced)) return false;
    if (SKIPPED.has(keyOf(r))) leave(SKIPPED_TEXT, keyOf(r));
    return !SKIPPED.has(keyOf(r));
  });
  const work = async (): Promise<void> => {
    for (let r = queue.shift(); r; r = queue.shift()) {
      try {
        let seen = 0;
        let next = '';
        do {
          const path = listPath(r, resource.namespaced ? object.metadata.namespace : '') + query({ limit: PAGE, continue: next });
          const list = await requestList<KubeObject>(path, { signal, accept: PARTIAL, quiet: true });
          for (const o of list.items) {
            for (const owner of o.metadata?.ownerReferences ?? []) {
              const siblings = byOwner.get(owner.uid) ?? [];
              byOwner.set(owner.uid, siblings);
              siblings.push({
                label: o.metadata.name ?? '', kind: r.kind, href: objectLink(r, o.metadata.namespace, o.metadata.name ?? ''),
                uid: o.metadata.uid ?? '', owners: [owner.uid],
              });
            }
          }
          seen += list.items.length;
          next = list.metadata.continue ?? '';
        } while (next && seen < MOST_LOOKED_AT);
        if (next) leave(`Only the first ${MOST_LOOKED_AT} were looked at`, r.plural);
      } catch (e) {
        if (signal.aborted) return;
        if (e instanceof APIError && e.code === 403) leave('Not readable for you', r.plural);
        else leave('Not read', `${r.plural} (${messageOf(e)})`);
      }
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  const levels: GraphNode[][] = [];
  const seen = new Set([object.metadata.uid]);
  for (let above = [object.metadata.uid ?? '']; above.length && levels.length < DEPTH; ) {
    const level = above
      .flatMap((uid) => byOwner.get(uid)?.sort((a, b) => a.kind.localeCompare(b.kind) || a.label.localeCompare(b.label)) ?? [])
      .filter((n) => !seen.has(n.uid) && seen.add(n.uid));
    if (level.length) levels.push(level);
    above = level.map((n) => n.uid);
  }
  return { levels, left };
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
    y: (height - shown[level].length * (HEIGHT + GAP_Y)) / 2 + i * (HEIGHT + GAP_Y) + GAP_Y / 2,
  });
  const hidden = levels.reduce((n, l) => n + Math.max(0, l.length - SHOWN), 0);
  return (
    <div class="graph scroll" tabIndex={0} role="region" aria-label="Owners and dependents">
      <svg width={width} height={height} role="list" aria-label="Objects">
        {shown.slice(1).flatMap((level, l) =>
          level.flatMap((n, i) =>
            shown[l].map((above, j) => {
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
                <text x={10} y={16} class="node-kind">
                  {n.kind}
                </text>{' '}
                <text x={10} y={31}>
                  {n.label.length > 30 ? `${n.label.slice(0, 29)}…` : n.label}
                </text>
              </g>
            );
            return (
              <g role="listitem" key={n.uid || `${l}-${i}`}>
                {n.href ? (
                  <a href={n.href} aria-label={`${n.kind} ${n.label}`}>
                    {box}
                  </a>
                ) : (
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
