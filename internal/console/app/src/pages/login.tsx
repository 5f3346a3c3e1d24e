// Log in: by a token, by the identity provider of the server, or not at all if the browser has shown a client certificate.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { beginOIDC } from '../client/oidc';
import { whoAmI, type Config } from '../client/server';
import { setToken } from '../client/session';
import { APIError } from '../logic/kubernetes';
import { Problem } from '../parts/ui';

export function Login(props: { config: Config; reason: string; done: () => void }): JSX.Element {
  const { config, done } = props;
  const { oidc } = config;
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
        <button class="primary" disabled={busy}>Log in</button>
      </form>
      {oidc ? (
        <p><button onClick={() => void beginOIDC(oidc).catch(setError)}>Log in with {new URL(oidc.authorizationEndpoint).host}</button></p>
      ) : null}
      <p class="dim">
        <code>kubectl create token NAME</code> gives a token of a ServiceAccount. It stays in the memory of this page and is gone when you
        close or reload it. <code>keelson console</code> opens this page with your kubeconfig, without a token.
      </p>
    </main>
  );
}
