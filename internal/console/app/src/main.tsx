// The console: its frame, the addresses of its views, and its keys.

import { Component, render, type ComponentChildren, type JSX } from 'preact';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { finishOIDC } from './client/oidc';
import { listeners } from './client/request';
import { consoleConfig, discover, serverInfo, whoAmI, type Config } from './client/server';
import { hasToken, setToken, takeSession } from './client/session';
import { APIError, messageOf } from './logic/kubernetes';
import { link, type Location } from './logic/links';
import { findByKey, keyOf, type Resource } from './logic/resources';
import { Access } from './pages/access';
import { Create } from './pages/create';
import { Definitions, DefinitionView } from './pages/definitions';
import { Extensions } from './pages/extensions';
import { Home } from './pages/home';
import { ResourceList } from './pages/list';
import { Login } from './pages/login';
import { ObjectView } from './pages/object/object';
import { Server } from './pages/server';
import { Timeline } from './pages/timeline';
import { AppContext, useEvery, type App } from './parts/app';
import { isTyping } from './parts/keys';
import { Help, PAGES, Palette, RESOURCE_KEYS } from './parts/palette';
import { go, listLink, useLocation } from './parts/router';
import { toast, Toasts } from './parts/toasts';
import { Busy, Problem } from './parts/ui';

listeners.warning = (text) => toast('warning', text);

type Phase = { step: 'starting' } | { step: 'login'; config: Config; reason: string } | { step: 'ready'; app: App } | { step: 'failed'; error: unknown };

function Root(): JSX.Element {
  const [phase, setPhase] = useState<Phase>({ step: 'starting' });
  const logOut = useCallback(() => {
    setToken('');
    setPhase((p) => (p.step === 'ready' ? { step: 'login', config: p.app.config, reason: '' } : p));
  }, []);
  const start = useCallback(async (reason: string) => {
    try {
      const config = await consoleConfig();
      try {
        // Alone: a server ends the connection with its answer to somebody who has not logged in, and other requests on it fail.
        const user = await whoAmI();
        if (user.username === 'system:anonymous' && !config.proxied) {
          setPhase({ step: 'login', config, reason });
          return;
        }
        const [server, discovery] = await Promise.all([serverInfo(), discover()]);
        let last = discovery;
        const app: App = {
          config, user, server, discovery, logOut,
          refreshDiscovery: async () => {
            const next = await discover(last);
            last = next;
            setPhase((p) => (p.step === 'ready' ? { step: 'ready', app: { ...p.app, discovery: next } } : p));
          },
        };
        setPhase({ step: 'ready', app });
      } catch (e) {
        if (e instanceof APIError && (e.code === 401 || e.code === 403) && !config.proxied) {
          setPhase({ step: 'login', config, reason: e.code === 401 && hasToken() ? 'The server does not accept the token.' : reason });
        } else setPhase({ step: 'failed', error: e });
      }
    } catch (e) {
      setPhase({ step: 'failed', error: e });
    }
  }, []);
  useEffect(() => {
    void finishOIDC().then(start);
    let asking = false;
    // An extension API server may answer 401 for reasons of its own: the server itself says whether the login has ended.
    listeners.unauthorized = () => {
      if (!hasToken() || asking) return;
      asking = true;
      whoAmI()
        .catch((e: unknown) => {
          if (!(e instanceof APIError) || e.code !== 401) return;
          setToken('');
          void start('Your login has ended.');
        })
        .finally(() => (asking = false));
    };
  }, []);
  switch (phase.step) {
    case 'starting':
      return <Busy what="Keelson" />;
    case 'failed':
      return <main class="login"><h1>Keelson</h1><Problem error={phase.error} retry={() => void start('')} /></main>;
    case 'login':
      return <Login config={phase.config} reason={phase.reason} done={() => void start('')} />;
    case 'ready':
      return <AppContext.Provider value={phase.app}><Frame app={phase.app} /><Toasts /></AppContext.Provider>;
  }
}

/** Definitions of custom resources change what there is: discovery is read again while the page is looked at. */
const DISCOVER_AGAIN = 60_000;

function Frame({ app }: { app: App }): JSX.Element {
  const at = useLocation();
  const [overlay, setOverlay] = useState<'' | 'help' | 'palette'>('');
  const [menu, setMenu] = useState(false);
  const main = useRef<HTMLElement>(null);
  useKeys(app, setOverlay);
  useEvery(DISCOVER_AGAIN, () => void app.refreshDiscovery().catch(() => {}));
  const here = at.path.join('/');
  useEffect(() => {
    setMenu(false);
    document.title = `${at.path.slice(1).filter((p) => p !== '-').join(' ') || 'Overview'} – Keelson`;
  }, [here]);
  return (
    <div class={menu ? 'frame menu-open' : 'frame'}>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.focus(); }}>To the content</a>
      <header class="top">
        <button class="quiet menu" aria-label="Menu" aria-expanded={menu} onClick={() => setMenu(!menu)}>☰</button>
        <a class="brand" href={link([])}>Keelson</a>
        <span class="dim address">{app.config.server ?? location.host}</span>
        <span class="space" />
        <button class="quiet" onClick={() => setOverlay('palette')}>
          Go to <kbd>:</kbd>
        </button>
        <a href={link(['create'])}>Create</a>
        <button class="quiet" aria-label="Keys" onClick={() => setOverlay('help')}><kbd>?</kbd></button>
        <Theme />
        <span class="user" title={app.user.groups.join(', ')}>{app.user.username}</span>
        {app.config.proxied ? null : <button class="quiet" onClick={app.logOut}>Log out</button>}
      </header>
      <Sidebar app={app} here={here} />
      <main ref={main} tabIndex={-1} id="main"><Guard key={at.path.slice(0, 4).join('/')}><View app={app} at={at} /></Guard></main>
      {overlay === 'help' ? <Help close={() => setOverlay('')} /> : null}
      {overlay === 'palette' ? <Palette close={() => setOverlay('')} /> : null}
    </div>
  );
}

/** Guard shows the error of a view and lets the others live. */
class Guard extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: null as unknown };
  static override getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }
  override render(): ComponentChildren {
    return this.state.error ? <Problem error={new Error(`This view failed: ${messageOf(this.state.error)}`)} /> : this.props.children;
  }
}

function View({ app, at }: { app: App; at: Location }): JSX.Element {
  const [first, key, third, fourth, fifth] = at.path;
  const resource = useMemo(() => (key ? findByKey(app.discovery, key) : undefined), [app.discovery, key]);
  switch (first) {
    case undefined:
      return <Home />;
    case 'r':
      return resource ? <ResourceList key={keyOf(resource)} resource={resource} /> : <Unknown what={key} />;
    case 'o': {
      if (!resource || !fourth) return <Unknown what={key} />;
      const namespace = third === '-' ? '' : (third ?? '');
      return <ObjectView key={`${key}/${namespace}/${fourth}`} resource={resource} namespace={namespace} name={fourth} tab={fifth ?? ''} />;
    }
    case 'create':
      return <Create key={at.params.toString()} />;
    case 'timeline':
      return app.server.history ? <Timeline /> : <Unknown what="history" />;
    case 'access':
      return <Access />;
    case 'definitions':
      return key ? <DefinitionView key={key} name={key} /> : <Definitions />;
    case 'extensions':
      return <Extensions />;
    case 'server':
      return <Server />;
    default:
      return <Unknown what={first} />;
  }
}

const Unknown = ({ what }: { what: string | undefined }): JSX.Element => (
  <div class="problem">
    The server has no <code>{what}</code>.
  </div>
);

const GROUPS: [string, RegExp][] = [
  ['Workloads', /^(pods|replicationcontrollers|.*\.apps|.*\.batch|.*\.autoscaling|.*\.policy|podtemplates)$/],
  ['Network', /^(services|endpoints|.*\.networking\.k8s\.io|.*\.discovery\.k8s\.io)$/],
  ['Configuration', /^(configmaps|secrets|limitranges|resourcequotas)$/],
  ['Storage', /^(persistentvolume.*|.*\.storage\.k8s\.io|.*\.storagemigration\.k8s\.io)$/],
  ['Access', /^(serviceaccounts|.*\.rbac\.authorization\.k8s\.io|.*\.certificates\.k8s\.io)$/],
  ['Cluster', /^(namespaces|nodes|events|events\.events\.k8s\.io|.*\.node\.k8s\.io|.*\.scheduling\.k8s\.io|.*\.coordination\.k8s\.io|componentstatuses|.*\.resource\.k8s\.io)$/],
  ['Extensions of the server', /\.(admissionregistration|apiextensions|apiregistration|flowcontrol\.apiserver|internal\.apiserver)\.k8s\.io$/],
];

function Sidebar({ app, here }: { app: App; here: string }): JSX.Element {
  const groups = useMemo(() => {
    const out = new Map<string, Resource[]>(GROUPS.map(([title]) => [title, []]));
    for (const r of app.discovery.resources) {
      if (!r.verbs.includes('list') || keyOf(r) === 'events.events.k8s.io') continue; // those are the events of the core group
      const key = keyOf(r);
      const title = GROUPS.find(([, pattern]) => pattern.test(key))?.[0] ?? r.group;
      out.set(title, [...(out.get(title) ?? []), r]);
    }
    return [...out].filter(([, all]) => all.length);
  }, [app.discovery]);
  const nav = useRef<HTMLElement>(null);
  useEffect(() => nav.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest' }), [here]);
  return (
    <nav ref={nav} class="side" aria-label="Resources">
      <ul>
        {PAGES.filter((p) => !p.history || app.server.history).map((p) => (
          <li key={p.href}><a href={p.href} aria-current={`#/${here}` === p.href ? 'page' : undefined}>{p.title}</a></li>
        ))}
      </ul>
      {groups.map(([title, all]) => (
        <details key={title} open={['Workloads', 'Configuration', 'Cluster'].includes(title) || all.some((r) => here.split('/')[1] === keyOf(r))}>
          <summary>{title}</summary>
          <ul>
            {all.map((r) => (
              <li key={keyOf(r)}>
                <a href={listLink(r)} title={keyOf(r)} aria-current={here.split('/')[1] === keyOf(r) ? 'page' : undefined}>{r.kind}</a>
              </li>
            ))}
          </ul>
        </details>
      ))}
    </nav>
  );
}

const THEME = 'keelson-theme';

function Theme(): JSX.Element {
  const change = (): void => {
    const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(THEME, theme);
  };
  return <button class="quiet" aria-label="Dark or light" onClick={change}>◐</button>;
}

/** useKeys handles the keys that work everywhere. */
function useKeys(app: App, show: (overlay: 'help' | 'palette') => void): void {
  useEffect(() => {
    let leader = -Infinity; // when g was pressed
    const down = (e: KeyboardEvent): void => {
      if ((e.ctrlKey || e.metaKey) && e.key === 'k') {
        e.preventDefault();
        show('palette');
        return;
      }
      if (isTyping(e)) {
        const field = e.composedPath()[0] as HTMLElement;
        if (e.key === 'Escape' && !field.closest('.xterm')) field.blur();
        return;
      }
      if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
      if (performance.now() - leader < 1500) {
        leader = -Infinity;
        const resource = findByKey(app.discovery, RESOURCE_KEYS[e.key] ?? '');
        const page = PAGES.find((p) => p.key === e.key);
        if (resource) go(listLink(resource));
        else if (page) go(page.href);
        return;
      }
      switch (e.key) {
        case 'g':
          leader = performance.now();
          return;
        case '/': {
          const search = document.getElementById('search');
          if (search) {
            e.preventDefault();
            search.focus();
          }
          return;
        }
        case '?':
          show('help');
          return;
        case ':':
          e.preventDefault();
          show('palette');
          return;
        case '+':
          go(link(['create']));
          return;
      }
    };
    addEventListener('keydown', down);
    return () => removeEventListener('keydown', down);
  }, [app]);
}

document.documentElement.dataset.theme =
  localStorage.getItem(THEME) ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
takeSession();
render(<Root />, document.getElementById('app') ?? document.body);
