// The login: the token, and the session of `keelson console`. The token is in this module alone, in memory: it is gone with the page.

let token = '';

/** The session of `keelson console`: without it the cookie is worth nothing. Other ports of the host cannot read it. */
let session = '';

const SESSION_KEY = 'keelson-session';

/** takeSession takes the session that the one-time link has put into the address, or that an earlier tab has kept. */
export function takeSession(): void {
  const given = /^#session=([\w-]+)$/.exec(location.hash)?.[1];
  if (given) {
    localStorage.setItem(SESSION_KEY, given);
    history.replaceState(null, '', location.pathname);
  }
  session = given ?? localStorage.getItem(SESSION_KEY) ?? '';
}

export const setToken = (value: string): void => void (token = value);

export const hasToken = (): boolean => token !== '';

/** sessionHeader has the session for the command `keelson console`. A server ignores it. */
export const sessionHeader = (): Record<string, string> => ({ 'X-Keelson-Console': session || '1' });

/** credentials are the headers of a request of the user. */
export const credentials = (): Record<string, string> => ({ ...sessionHeader(), ...(token ? { Authorization: `Bearer ${token}` } : {}) });

/** base64url encodes as RFC 4648, section 5, without padding. */
export const base64url = (binary: string): string => btoa(binary).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

/** socketProtocols are credentials as subprotocols: a browser sends no headers with a WebSocket. Kubernetes has the one with the token. */
export const socketProtocols = (): string[] => [
  ...(token ? [`base64url.bearer.authorization.k8s.io.${base64url(token)}`] : []),
  ...(session ? [`keelson-console.${session}`] : []),
];
