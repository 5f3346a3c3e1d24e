// What was deleted, brought back together.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { carryOut, type Outcome } from '../client/undelete';
import { keyOf } from '../logic/resources';
import type { Plan } from '../logic/undelete';
import { useApp } from './app';
import { attempt } from './toasts';
import { Badge, Dialog, SimpleTable } from './ui';

interface Row {
  name: string;
  result: Outcome['result'];
  text: string;
}

/** UndeleteAll brings back what a plan has: objects as they were before their last deletion, with their namespace if it is gone. */
export function UndeleteAll(props: { title: string; plan: () => Promise<Plan>; close: () => void }): JSX.Element {
  const { discovery, refreshDiscovery } = useApp();
  const [rows, setRows] = useState<Row[]>([]);
  const [busy, setBusy] = useState(false);
  const [tried, setTried] = useState(false);
  const run = async (dryRun: boolean): Promise<void> => {
    setBusy(true);
    setRows([]);
    const ok = await attempt('Undelete', async () => {
      const plan = await props.plan();
      for await (const { resource, group, namespace, name, result, text } of carryOut(discovery, plan, dryRun)) {
        const back = (dryRun ? 'would come back' : 'is back') + (text ? ` (${text})` : '');
        const row = {
          name: name ? `${resource} ${[namespace, name].filter(Boolean).join('/')}` : keyOf({ group, plural: resource }),
          result, text: result === 'created' ? back : text,
        };
        setRows((old) => [...old, row]);
      }
      if (!dryRun && plan.steps.some((s) => s.contentAsOf)) await refreshDiscovery();
    });
    setBusy(false);
    setTried(ok);
  };
  return (
    <Dialog wide title={`Undelete ${props.title}`} close={props.close}>
      <p>
        Each object is created as it was before its deletion, by ordinary requests of yours, owners first. What a controller makes again is
        left out. A namespace comes back with all that was in it, also if it is gone and only objects of it are listed, and a definition
        with its objects.
      </p>
      <div class="bar">
        <button disabled={busy} onClick={() => void run(true)}>Try (dry run)</button>
        <button class="primary" disabled={busy || !tried} onClick={() => void run(false)}>Undelete</button>
      </div>
      <SimpleTable
        label="Results"
        empty=""
        head={['Object', 'Result', 'Message']}
        rows={rows.map((r) => [r.name, <Badge tone={TONES[r.result]}>{LABELS[r.result]}</Badge>, r.text])}
      />
    </Dialog>
  );
}

const TONES = { created: 'good', skipped: 'idle', refused: 'bad' } as const;
const LABELS = { created: 'ok', skipped: 'left out', refused: 'refused' } as const;
