// What the server has and is: discovery, version, user, health and metrics.

import { APIError, type Status } from '../logic/kubernetes';
import { parseMetrics, queued, type Sample } from '../logic/metrics';
import { discoveryOf, type APIGroup, type Discovery } from '../logic/resources';
import { request, requestList, sent } from './request';
import { sessionHeader } from './session';

const ACCEPT = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json';

/** discover reads what there is. Resources that are as in before are the same objects, so that views of them do not begin again. */
export async function discover(before?: Discovery): Promise<Discovery> {
  const read = async (path: string): Promise<APIGroup[]> => (await requestList<APIGroup>(path, { accept: ACCEPT })).items;
  return discoveryOf((await Promise.all([read('/api'), read('/apis')])).flat(), before);
}

export interface ServerInfo {
  gitVersion: string;
  /** Whether the server keeps the past of objects and answers for it (Keelson). */
  history: boolean;
  raw: { gitVersion?: string; buildDate?: string; goVersion?: string; platform?: string; emulationMajor?: string; emulationMinor?: string };
}

/** serverInfo is empty where /version may not be read. */
export async function serverInfo(): Promise<ServerInfo> {
  try {
    const raw = await request<ServerInfo['raw']>('/version');
    const gitVersion = raw.gitVersion ?? '';
    return { gitVersion, history: gitVersion.includes('keelson'), raw };
  } catch (e) {
    if (e instanceof APIError) return { gitVersion: '', history: false, raw: {} };
    throw e;
  }
}

/** Config is config.json, which internal/console writes. Anybody may read it. */
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

export async function whoAmI(): Promise<{ username: string; groups: string[] }> {
  const review = await request<{ status?: { userInfo?: { username?: string; groups?: string[] } } }>('/apis/authentication.k8s.io/v1/selfsubjectreviews', {
    method: 'POST', quiet: true,
    body: JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }),
  });
  return { username: review.status?.userInfo?.username ?? '', groups: review.status?.userInfo?.groups ?? [] };
}

export async function metrics(wanted: (name: string) => boolean, signal?: AbortSignal): Promise<Sample[]> {
  return parseMetrics(await request<string>('/metrics', { text: true, accept: 'text/plain', signal }), wanted);
}

export async function health(path: string, signal: AbortSignal): Promise<{ ok: boolean; text: string }> {
  try {
    return { ok: true, text: await request<string>(path, { text: true, accept: 'text/plain', signal }) };
  } catch (e) {
    return { ok: false, text: e instanceof Error ? e.message : String(e) };
  }
}

/** waiting counts the requests in the queues of API Priority and Fairness by user. It is undefined where these may not be read. */
export async function waiting(signal: AbortSignal): Promise<Map<string, number> | undefined> {
  const path = '/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1';
  const text = await request<string>(path, { text: true, accept: 'text/plain', signal }).catch((e: unknown) => {
    if (e instanceof APIError && (e.code === 403 || e.code === 404)) return '';
    throw e;
  });
  return queued(text);
}
