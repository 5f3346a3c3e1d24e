// Log in: by a token, by the identity provider of the server, or not at all if the browser has shown a client certificate.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { APIError, messageOf, sessionHeader, setToken } from './api';
import { whoAmI } from './app';
import type { Config } from './discovery';
import { Problem } from './ui';

export function Login(props: { config: Config; reason: string; done: () => void }): JSX.Element {
  const { config, done } = props;
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const enter = async (token: string): Promise<void> => {
    setBusy(true);
    setError(null);
    setToken(token.trim());
    try {
      await whoAmI();
      done();
    } catch (e) {
      setToken('');
      setError(e instanceof APIError && e.code === 401 ? new Error('The server does not accept this token.') : e);
    }
    setBusy(false);
  };
  return (
    <main class="login">
      <h1>Keelson</h1>
      <p>Kubernetes {config.kubernetes}</p>
      {props.reason ? <p class="warn-text">{props.reason}</p> : null}
      {error ? <Problem error={error} /> : null}
      <form
        onSubmit={(e) => {
          e.preventDefault();
          const field = e.currentTarget.elements.namedItem('token') as HTMLInputElement;
          const token = field.value;
          field.value = '';
          void enter(token);
        }}
      >
        <label for="token">Bearer token</label>
        <input id="token" name="token" type="password" autocomplete="off" spellcheck={false} required autofocus />
        <button class="primary" disabled={busy}>
          Log in
        </button>
      </form>
      {config.oidc ? (
        <p>
          <button onClick={() => void beginOIDC(config).catch(setError)}>Log in with {new URL(config.oidc.authorizationEndpoint).host}</button>
        </p>
      ) : null}
      <p class="dim">
        <code>kubectl create token NAME</code> gives a token of a ServiceAccount. It stays in the memory of this page and is gone when you
        close or reload it. <code>keelson console</code> opens this page with your kubeconfig, without a token.
      </p>
    </main>
  );
}

const STORED = 'keelson-login';

const base64url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

const random = (): string => base64url(crypto.getRandomValues(new Uint8Array(32)));

const redirectURI = (): string => new URL('/console/', location.href).href;

/** beginOIDC goes to the identity provider (authorization code flow with PKCE, RFC 7636). What it has to remember is no token. */
async function beginOIDC(config: Config): Promise<void> {
  const oidc = config.oidc!;
  const [verifier, state, nonce] = [random(), random(), random()];
  const challenge = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier)));
  sessionStorage.setItem(STORED, JSON.stringify({ verifier, state, nonce, hash: location.hash }));
  const to = new URL(oidc.authorizationEndpoint);
  if (to.protocol !== 'https:' && to.hostname !== '127.0.0.1' && to.hostname !== 'localhost') throw new Error('the identity provider has no https address');
  for (const [key, value] of Object.entries({
    response_type: 'code', client_id: oidc.clientID, redirect_uri: redirectURI(), scope: oidc.scopes.join(' '), state, nonce,
    code_challenge: base64url(challenge), code_challenge_method: 'S256',
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
      Uint8Array.from(atob(answer.token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0)),
    )) as { nonce?: string };
    if (claims.nonce !== nonce) return 'the token of the identity provider is not for this login';
    setToken(answer.token);
    return '';
  } catch (e) {
    return messageOf(e);
  }
}
