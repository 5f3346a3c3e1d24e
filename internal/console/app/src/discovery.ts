// What the server has: its resources, from aggregated discovery, and what it is.

import { APIError, request, sent, sessionHeader, type Status, type Value } from './api';
import { escapeSegment } from './router';

export interface Resource {
  group: string;
  version: string;
  kind: string;
  plural: string;
  singular: string;
  namespaced: boolean;
  verbs: string[];
  shortNames: string[];
  categories: string[];
  subresources: Map<string, string[]>; // name to verbs
  /** Other versions that are served, the preferred one is not among them. */
  otherVersions: string[];
}

export interface Discovery {
  resources: Resource[];
  /** Groups whose extension API servers do not answer. */
  stale: string[];
}

const ACCEPT = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json';

/** discover reads what there is. Resources that are as in before are the same objects, so that views of them do not begin again. */
export async function discover(before?: Discovery): Promise<Discovery> {
  const [core, groups] = await Promise.all([
    request('/api', { accept: ACCEPT }),
    request('/apis', { accept: ACCEPT }),
  ]);
  const resources: Resource[] = [];
  const stale: string[] = [];
  for (const group of [...(core.items ?? []), ...(groups.items ?? [])]) {
    const name: string = group.metadata?.name ?? '';
    const seen = new Map<string, Resource>();
    for (const version of group.versions ?? []) {
      if (version.freshness === 'Stale') stale.push(`${version.version}.${name}`);
      for (const r of version.resources ?? []) {
        if (!r.responseKind || !r.verbs?.length) continue;
        const known = seen.get(r.resource);
        if (known) {
          known.otherVersions.push(version.version);
          continue;
        }
        const subresources = new Map<string, string[]>();
        for (const s of r.subresources ?? []) subresources.set(s.subresource, s.verbs ?? []);
        const one: Resource = {
          group: name,
          version: version.version,
          kind: r.responseKind.kind,
          plural: r.resource,
          singular: r.singularResource ?? '',
          namespaced: r.scope === 'Namespaced',
          verbs: r.verbs,
          shortNames: r.shortNames ?? [],
          categories: r.categories ?? [],
          subresources,
          otherVersions: [],
        };
        seen.set(r.resource, one);
        resources.push(one);
      }
    }
  }
  const text = (r: Resource): string => JSON.stringify({ ...r, subresources: [...r.subresources] });
  const known = new Map((before?.resources ?? []).map((r) => [text(r), r]));
  return { resources: resources.map((r) => known.get(text(r)) ?? r), stale };
}

export const hasVerb = (r: Resource, verb: string): boolean => r.verbs.includes(verb);

/** keyOf is how a resource is named in an address of the page: pods, deployments.apps. */
export const keyOf = (r: Pick<Resource, 'group' | 'plural'>): string => (r.group ? `${r.plural}.${r.group}` : r.plural);

export const apiVersionOf = (r: Pick<Resource, 'group' | 'version'>): string =>
  r.group ? `${r.group}/${r.version}` : r.version;

/** escape returns a name as a segment of a path. Browsers remove the segments . and .., which are no names of Kubernetes. */
function escape(name: string): string {
  if (name === '.' || name === '..') throw new Error(`${name} is not a name`);
  return escapeSegment(name);
}

export const basePath = (r: Pick<Resource, 'group' | 'version'>): string =>
  r.group ? `/apis/${escape(r.group)}/${escape(r.version)}` : `/api/${escape(r.version)}`;

export function listPath(r: Resource, namespace = ''): string {
  return r.namespaced && namespace
    ? `${basePath(r)}/namespaces/${escape(namespace)}/${escape(r.plural)}`
    : `${basePath(r)}/${escape(r.plural)}`;
}

export function objectPath(r: Resource, namespace: string | undefined, name: string, subresource = ''): string {
  const path = `${listPath(r, namespace)}/${escape(name)}`;
  return subresource ? `${path}/${subresource}` : path;
}

export const findByKey = (d: Discovery, key: string): Resource | undefined => d.resources.find((r) => keyOf(r) === key);

export function findByKind(d: Discovery, apiVersion: string, kind: string): Resource | undefined {
  const group = apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : '';
  const found = d.resources.find((r) => r.group === group && r.kind === kind);
  if (!found) return undefined;
  const version = apiVersion.slice(apiVersion.indexOf('/') + 1);
  return found.version === version || !found.otherVersions.includes(version) ? found : { ...found, version };
}

export interface ServerInfo {
  gitVersion: string;
  /** Whether the server keeps the past of objects and answers for it (Keelson). */
  history: boolean;
  raw: Value;
}

export async function serverInfo(): Promise<ServerInfo> {
  try {
    const raw = await request('/version');
    const gitVersion = String(raw.gitVersion ?? '');
    return { gitVersion, history: gitVersion.includes('keelson'), raw };
  } catch (e) {
    if (e instanceof APIError) return { gitVersion: '', history: false, raw: {} };
    throw e;
  }
}

export interface Config {
  product: string;
  version: string;
  kubernetes: string;
  proxied: boolean;
  server?: string;
  oidc?: { authorizationEndpoint: string; clientID: string; scopes: string[] } | null;
}

export async function consoleConfig(): Promise<Config> {
  const response = await sent('config.json', { cache: 'no-store', credentials: 'same-origin', headers: sessionHeader() }, true);
  if (!response.ok) {
    const status = (await response.json().catch(() => ({}))) as Status;
    throw new Error(status.message || `config.json: ${response.status}`);
  }
  return (await response.json()) as Config;
}
