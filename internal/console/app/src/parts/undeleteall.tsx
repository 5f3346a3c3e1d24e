// What was deleted, brought back together.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { asOf } from '../client/past';
import { request } from '../client/request';
import { beforeDeletion, contentThen, served, undelete, type Outcome } from '../client/undelete';
import type { Change } from '../logic/changes';
import { EXISTS, isContainer, isDefinition } from '../logic/comeback';
import { APIError, messageOf } from '../logic/kubernetes';
import { neverUndeleted, type Candidate } from '../logic/plan';
import { findByKey, findByKind, keyOf as keyOfResource, objectPath, type Discovery, type Resource } from '../logic/resources';
import { useApp } from './app';
import { attempt } from './toasts';
import { Badge, Dialog, SimpleTable } from './ui';

const textOf = (resource: string | undefined, namespace: string | undefined, name: string | undefined): string =>
  `${resource ?? ''} ${[namespace, name].filter(Boolean).join('/')}`;

/** namespaceThatIsGone returns the deletion of a namespace that does not exist. */
async function namespaceThatIsGone(d: Discovery, name: string): Promise<Change[]> {
  const r = name ? findByKind(d, 'v1', 'Namespace') : undefined;
  if (!r) return [];
  const gone = await request(objectPath(r, '', name), { quiet: true }).then(
    () => false,
    (e: unknown) => e instanceof APIError && e.code === 404,
  );
  return gone ? [{ type: 'Deleted', resourceVersion: '', resource: r.plural, name }] : [];
}

interface Row {
  name: string;
  result: Outcome['result'];
  text: string;
}

/** UndeleteAll brings objects back as they were before their last deletion, owners before what they own, with their namespace if it is gone. */
export function UndeleteAll(props: {
  deletions: Change[];
  title?: string;
  namespace: string; // that they are of, or ''
  resourceOf: (c: Change) => Resource | undefined;
  close: () => void;
}): JSX.Element {
  const { discovery, refreshDiscovery } = useApp();
  const [rows, setRows] = useState<Row[]>([]);
  const [busy, setBusy] = useState(false);
  const [tried, setTried] = useState(false);
  const run = async (dryRun: boolean): Promise<void> => {
    setBusy(true);
    setRows([]);
    const add = (row: Row): void => setRows((old) => [...old, row]);
    const ok = await attempt('Undelete', async () => {
      let d = discovery;
      const found = new Map<string, Candidate>(); // by UID: what was in a namespace may be among the deletions too
      const find = (c: Candidate): void => void found.set(c.object.metadata.uid ?? '', c);
      const left = (r: Resource, result: Row['result'], why: string): void => add({ name: keyOfResource(r), result, text: why });
      const create = async (objects: Candidate[]): Promise<void> => {
        for await (const { resource, object: { metadata }, result, text } of undelete(d, objects, false, dryRun)) {
          const back = (dryRun ? 'would come back' : 'is back') + (text ? ` (${text})` : '');
          add({ name: textOf(resource.plural, metadata.namespace, metadata.name), result, text: result === 'created' ? back : text });
        }
      };
      const all = [...(await namespaceThatIsGone(d, props.namespace)), ...props.deletions];
      const definitions = all.filter((c) => c.group === 'apiextensions.k8s.io' && c.resource === 'customresourcedefinitions');
      // Definitions are first: the server has the past of their objects when it serves them.
      for (const c of [...definitions, ...all.filter((c) => !definitions.includes(c))]) {
        const report = (result: Row['result'], text: string): void => add({ name: textOf(c.resource, c.namespace, c.name), result, text });
        try {
          const was = await before(c, d);
          if (typeof was === 'string') {
            report('skipped', was);
            continue;
          }
          const { at, ...candidate } = was;
          if (isDefinition(candidate.resource)) {
            await create([candidate]);
            if (dryRun) {
              left(candidate.resource, 'skipped', `the objects of ${c.name} come back with it, and cannot be looked at before`);
              continue;
            }
            d = await served(d, candidate.object);
            await refreshDiscovery();
          } else find(candidate);
          if (isContainer(candidate.resource)) (await contentThen(d, candidate, at, left)).forEach(find);
        } catch (e) {
          report('refused', messageOf(e));
        }
      }
      await create([...found.values()]);
    });
    setBusy(false);
    setTried(ok);
  };
  /** before returns an object as it was, and at which revision, or why it does not come back. */
  const before = async (c: Change, d: Discovery): Promise<(Candidate & { at: string }) | string> => {
    const resource = props.resourceOf(c) ?? findByKey(d, c.group ? `${c.resource ?? ''}.${c.group}` : (c.resource ?? ''));
    if (!resource) return 'the server does not have its resource any more';
    const never = neverUndeleted(resource);
    if (never) return never;
    const revision = await beforeDeletion(resource, c.namespace ?? '', c.name ?? '');
    return revision ? { resource, object: await asOf(resource, c.namespace ?? '', c.name ?? '', revision), at: revision } : EXISTS;
  };
  return (
    <Dialog wide title={`Undelete ${props.title ?? `${props.deletions.length} objects`}`} close={props.close}>
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
