// The login at an identity provider: the authorization code flow of OpenID Connect with PKCE (RFC 7636).

import { messageOf } from '../logic/kubernetes';
import type { Config } from './server';
import { base64url, sessionHeader, setToken } from './session';

const STORED = 'keelson-login';

const random = (): string => base64url(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))));

const redirectURI = (): string => new URL('/console/', location.href).href;

/** beginOIDC goes to the identity provider (authorization code flow with PKCE, RFC 7636). What it has to remember is no token. */
export async function beginOIDC(oidc: NonNullable<Config['oidc']>): Promise<void> {
  const [verifier, state, nonce] = [random(), random(), random()];
  const challenge = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier)));
  sessionStorage.setItem(STORED, JSON.stringify({ verifier, state, nonce, hash: location.hash }));
  const to = new URL(oidc.authorizationEndpoint);
  if (to.protocol !== 'https:' && to.hostname !== '127.0.0.1' && to.hostname !== 'localhost') throw new Error('the identity provider has no https address');
  for (const [key, value] of Object.entries({
    response_type: 'code', client_id: oidc.clientID, redirect_uri: redirectURI(), scope: oidc.scopes.join(' '), state, nonce,
    code_challenge: base64url(String.fromCharCode(...challenge)), code_challenge_method: 'S256',
  })) {
    to.searchParams.set(key, value);
  }
  location.assign(to);
}

/** finishOIDC takes the code that the identity provider has sent back, if there is one, and gets the token for it. */
export async function finishOIDC(): Promise<string> {
  const q = new URLSearchParams(location.search);
  const stored = sessionStorage.getItem(STORED);
  if (!q.has('state') || !stored) return '';
  sessionStorage.removeItem(STORED);
  const { verifier, state, nonce, hash } = JSON.parse(stored) as Record<string, string>;
  history.replaceState(null, '', `/console/${hash}`);
  if (q.get('state') !== state) return 'the answer of the identity provider is not for this page';
  if (q.has('error')) return q.get('error_description') ?? q.get('error') ?? 'refused';
  try {
    const response = await fetch('oidc/token', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...sessionHeader() },
      body: JSON.stringify({ code: q.get('code'), codeVerifier: verifier, redirectURI: redirectURI() }),
      credentials: 'same-origin',
    });
    const answer = (await response.json()) as { token?: string; message?: string };
    if (!response.ok || !answer.token) return answer.message ?? `the login failed: ${response.status}`;
    const claims = JSON.parse(new TextDecoder().decode(
      Uint8Array.from(atob((answer.token.split('.')[1] ?? '').replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0)),
    )) as { nonce?: string };
    if (claims.nonce !== nonce) return 'the token of the identity provider is not for this login';
    setToken(answer.token);
    return '';
  } catch (e) {
    return messageOf(e);
  }
}
