// A shell in a container, over a WebSocket. The terminal is loaded when it is used.

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { socket } from '../../client/request';
import { textOf } from '../../logic/format';
import type { KubeObject } from '../../logic/kubernetes';
import { query } from '../../logic/links';
import { containersOf } from '../../logic/logs';
import { at, listAt, textAt } from '../../logic/values';
import { ContainerPicker } from '../../parts/ui';

// Streams of v5.channel.k8s.io: the first byte of a message names the stream.
const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const ERROR = 3;
const RESIZE = 4;

export function Terminal({ pod }: { pod: KubeObject }): JSX.Element {
  const containers = containersOf(pod);
  const [container, setContainer] = useState(containers[0] ?? '');
  const [command, setCommand] = useState('/bin/sh');
  const [session, setSession] = useState(0);
  const [state, setState] = useState('');
  const host = useRef<HTMLDivElement>(null);
  const m = pod.metadata;

  useEffect(() => {
    if (!session || !host.current) return undefined;
    let closed = false;
    let end = (): void => {};
    setState('connecting');
    const element = host.current;
    void import('../../parts/xterm').then((x) => {
      if (closed) return;
      const path = `/api/v1/namespaces/${encodeURIComponent(m.namespace ?? '')}/pods/${encodeURIComponent(m.name ?? '')}/exec`;
      const parts = command.trim().split(/\s+/).map((part) => `&command=${encodeURIComponent(part)}`).join('');
      const ws = socket(path + query({ container, stdin: true, stdout: true, stderr: true, tty: true }) + parts, ['v5.channel.k8s.io', 'v4.channel.k8s.io']);
      ws.binaryType = 'arraybuffer';
      const encoder = new TextEncoder();
      const write = (stream: number, text: string): void => {
        if (ws.readyState !== WebSocket.OPEN) return;
        const body = encoder.encode(text);
        const message = new Uint8Array(body.length + 1);
        message[0] = stream;
        message.set(body, 1);
        ws.send(message);
      };
      const terminal = x.open(element, {
        input: (text) => write(STDIN, text),
        resize: (columns, rows) => write(RESIZE, JSON.stringify({ Width: columns, Height: rows })),
      });
      ws.onopen = () => {
        setState('connected');
        terminal.fit();
        terminal.focus();
      };
      ws.onmessage = (e: MessageEvent<ArrayBuffer>) => {
        if (closed) return;
        const bytes = new Uint8Array(e.data);
        if (bytes[0] === STDOUT || bytes[0] === STDERR) terminal.write(bytes.subarray(1));
        if (bytes[0] === ERROR) {
          try {
            const status = JSON.parse(new TextDecoder().decode(bytes.subarray(1))) as { message?: string; status?: string };
            setState(status.status === 'Success' ? 'ended' : (status.message ?? 'ended'));
          } catch {
            setState('ended');
          }
        }
      };
      ws.onclose = (e) => closed || setState((s) => (s === 'connecting' ? `the server refused the connection ${e.reason}` : s === 'connected' ? 'ended' : s));
      end = () => {
        ws.close();
        terminal.close();
      };
    }, () => setState('the terminal could not be loaded'));
    return () => {
      closed = true;
      end();
    };
  }, [session]);

  return (
    <div class="terminal">
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          setSession((n) => n + 1);
        }}
      >
        <ContainerPicker containers={containers} value={container} change={setContainer} />
        <label>
          Command <input type="text" spellcheck={false} value={command} onInput={(e) => setCommand(e.currentTarget.value)} />
        </label>
        <button class="primary">{session ? 'Connect again' : 'Connect'}</button>
        <span class="dim" role="status">{state}</span>
      </form>
      <Ports pod={pod} />
      <div ref={host} class="xterm-host" />
    </div>
  );
}

/** Ports lists the ports of a pod with the command that forwards them: a browser cannot open a port of the machine. */
function Ports({ pod }: { pod: KubeObject }): JSX.Element | null {
  const ports = listAt(pod, 'spec', 'containers').flatMap((c) => listAt(c, 'ports'));
  if (!ports.length) return null;
  return (
    <ul class="chips">
      {ports.map((p, i) => (
        <li key={i}>
          <code>{`kubectl port-forward -n ${pod.metadata.namespace ?? ''} ${pod.metadata.name ?? ''} ${textOf(at(p, 'containerPort'))}`}</code>{' '}
          <span class="dim">{textAt(p, 'name')}</span>
        </li>
      ))}
    </ul>
  );
}
