// Jump to a resource by its name, from the keyboard; and the list of keys.

import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { link } from '../logic/links';
import { keyOf } from '../logic/resources';
import { bestOf, type Target } from '../logic/targets';
import { useApp } from './app';
import { go, listLink } from './router';
import { Dialog } from './ui';

export function Palette({ close }: { close: () => void }): JSX.Element {
  const app = useApp();
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const targets = useMemo<Target[]>(
    () => [
      ...PAGES.filter((p) => !p.history || app.server.history).map((p) => ({ text: p.title, detail: 'page', href: p.href, words: p.title.toLowerCase() })),
      ...app.discovery.resources.filter((r) => r.verbs.includes('list'))
        .map((r) => ({
          text: r.kind, detail: keyOf(r), href: listLink(r), words: [r.kind, r.plural, ...r.shortNames, keyOf(r)].join(' ').toLowerCase(),
        })),
    ],
    [app.discovery],
  );
  const found = useMemo(() => bestOf(targets, text), [targets, text]);
  const open = (t: Target | undefined): void => {
    if (!t) return;
    close();
    go(t.href);
  };
  return (
    <Dialog title="Go to" close={close}>
      <input
        type="text"
        autofocus
        spellcheck={false}
        role="combobox"
        aria-label="Resource or page"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={found.length ? `palette-${at}` : undefined}
        placeholder="po, deploy, crd, events …"
        value={text}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={(e) => {
          if (e.key === 'ArrowDown') setAt(Math.min(found.length - 1, at + 1));
          else if (e.key === 'ArrowUp') setAt(Math.max(0, at - 1));
          else if (e.key === 'Enter') open(found[at]);
          else return;
          e.preventDefault();
        }}
      />
      <ul id="palette" class="palette" role="listbox" aria-label="Found">
        {found.map((t, i) => (
          <li key={t.href} id={`palette-${i}`} role="option" aria-selected={i === at} onClick={() => open(t)}>
            {t.text} <span class="dim">{t.detail}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

export const PAGES = [
  { key: 'h', title: 'Overview', href: link([]) },
  { key: 't', title: 'What changed', href: link(['timeline']), history: true },
  { key: 'a', title: 'Access', href: link(['access']) },
  { key: 'c', title: 'Custom resources', href: link(['definitions']) },
  { key: 'x', title: 'Extensions', href: link(['extensions']) },
  { key: 'v', title: 'Server', href: link(['server']) },
];

/** The keys after g that go to a resource. */
export const RESOURCE_KEYS: Record<string, string> = {
  p: 'pods', d: 'deployments.apps', s: 'services', m: 'configmaps', n: 'namespaces', o: 'nodes', e: 'events', j: 'jobs.batch',
};

export function Help({ close }: { close: () => void }): JSX.Element {
  const app = useApp();
  const rows: [string, string][] = [
    ['/', 'filter the list by name'],
    [': or Ctrl+K', 'go to any resource or page'],
    ['j k ↑ ↓', 'move in a list'],
    ['Enter', 'open the object'],
    ...Object.entries(RESOURCE_KEYS).map(([k, r]): [string, string] => [`g ${k}`, r]),
    ...PAGES.filter((p) => !p.history || app.server.history).map((p): [string, string] => [`g ${p.key}`, p.title.toLowerCase()]),
    ['+', 'create from YAML'],
    ['Ctrl+S', 'in an editor: review or try'],
    ['Escape', 'close, or leave a field'],
    ['?', 'this list'],
  ];
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">{rows.map(([k, what]) => <div key={k}><dt><kbd>{k}</kbd></dt><dd>{what}</dd></div>)}</dl>
    </Dialog>
  );
}
