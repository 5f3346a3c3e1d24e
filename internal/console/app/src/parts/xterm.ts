// What the terminal view needs of xterm.js: a part of the program that is loaded with the first terminal.

import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';

export interface Handle {
  write(data: Uint8Array): void;
  fit(): void;
  focus(): void;
  close(): void;
}

/** The nonce of the policy: xterm.js makes style elements, with the document of the page. */
const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? '';

/* eslint-disable @typescript-eslint/no-deprecated -- of the overloads of createElement, the one for any name is deprecated */
const create = document.createElement.bind(document);
document.createElement = (name: string, options?: ElementCreationOptions): HTMLElement => {
  const element = create(name, options);
  if (element instanceof HTMLStyleElement) element.nonce = nonce;
  return element;
};
/* eslint-enable @typescript-eslint/no-deprecated */

/** open shows a terminal in an element. on.input gets what is typed, on.resize the size in characters. */
export function open(
  host: HTMLElement,
  on: { input: (text: string) => void; resize: (columns: number, rows: number) => void },
): Handle {
  host.replaceChildren();
  const style = getComputedStyle(host);
  const terminal = new Terminal({
    fontFamily: style.getPropertyValue('--mono'),
    fontSize: 13,
    scrollback: 5000,
    allowProposedApi: false,
    theme: { background: '#101418', foreground: '#d8dee6' },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(host);
  terminal.onData(on.input);
  terminal.onResize(({ cols, rows }) => on.resize(cols, rows));
  // What runs in the container may not name the window, write to the clipboard or make links of its own.
  for (const code of [0, 1, 2, 8, 52]) terminal.parser.registerOscHandler(code, () => true);
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(host);
  return {
    write: (data) => terminal.write(data),
    fit: () => {
      fit.fit();
      on.resize(terminal.cols, terminal.rows);
    },
    focus: () => terminal.focus(),
    close: () => {
      observer.disconnect();
      terminal.dispose();
    },
  };
}
