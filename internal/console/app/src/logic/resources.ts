// The resources of a server, how they are named, and the paths of their objects.

/** Resource is one of the preferred version that has it. verbs are what the server can do, not what the user may. */
export interface Resource {
  group: string;
  version: string;
  kind: string;
  plural: string;
  namespaced: boolean;
  verbs: string[];
  shortNames: string[];
  subresources: Map<string, string[]>; // name to verbs
  /** Other versions that are served, the preferred one is not among them. */
  otherVersions: string[];
}

export interface Discovery {
  resources: Resource[];
  /** Groups whose extension API servers do not answer. */
  stale: string[];
}

/** APIGroup is an APIGroupDiscovery of apidiscovery.k8s.io/v2. */
export interface APIGroup {
  metadata?: { name?: string };
  versions?: {
    version: string;
    freshness?: string;
    resources?: {
      resource: string;
      responseKind?: { kind: string };
      scope?: string;
      verbs?: string[];
      shortNames?: string[];
      subresources?: { subresource: string; verbs?: string[] }[];
    }[];
  }[];
}

/** discoveryOf returns what groups have. A resource is taken from the first version that has it. Those that are as in before are the same objects. */
export function discoveryOf(groups: APIGroup[], before?: Discovery): Discovery {
  const resources: Resource[] = [];
  const stale: string[] = [];
  for (const { metadata, versions } of groups) {
    const group = metadata?.name ?? '';
    const seen = new Map<string, Resource>();
    for (const { version, freshness, resources: all } of versions ?? []) {
      if (freshness === 'Stale') stale.push(`${version}.${group}`);
      for (const r of all ?? []) {
        if (!r.responseKind || !r.verbs?.length) continue;
        const known = seen.get(r.resource);
        if (known) {
          known.otherVersions.push(version);
          continue;
        }
        const one: Resource = {
          group, version, kind: r.responseKind.kind, plural: r.resource, namespaced: r.scope === 'Namespaced',
          verbs: r.verbs, shortNames: r.shortNames ?? [],
          subresources: new Map((r.subresources ?? []).map((s) => [s.subresource, s.verbs ?? []])), otherVersions: [],
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

export const apiVersionOf = (r: Pick<Resource, 'group' | 'version'>): string => r.group ? `${r.group}/${r.version}` : r.version;

/** escapeSegment escapes a text as a segment of a path. Halves of surrogate pairs, which have no encoding, become U+FFFD. */
export const escapeSegment = (text: string): string => encodeURIComponent(text.replace(/\p{Cs}/gu, '\ufffd'));

/** escape returns a name as a segment of a path. Browsers remove the segments . and .., which are no names of Kubernetes. */
function escape(name: string): string {
  if (name === '.' || name === '..') throw new Error(`${name} is not a name`);
  return escapeSegment(name);
}

export const basePath = (r: Pick<Resource, 'group' | 'version'>): string =>
  r.group ? `/apis/${escape(r.group)}/${escape(r.version)}` : `/api/${escape(r.version)}`;

/** listPath leads to the objects of a namespace, or of all with an empty one. */
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

/** findByKind returns the resource of a kind in the version of apiVersion if that is served, otherwise in the preferred one. */
export function findByKind(d: Discovery, apiVersion: string, kind: string): Resource | undefined {
  const group = apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : '';
  const found = d.resources.find((r) => r.group === group && r.kind === kind);
  if (!found) return undefined;
  const version = apiVersion.slice(apiVersion.indexOf('/') + 1);
  return found.version === version || !found.otherVersions.includes(version) ? found : { ...found, version };
}
