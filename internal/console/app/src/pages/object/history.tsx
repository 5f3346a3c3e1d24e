// The history of one object: a timeline, who gave each field its value, the difference of any two versions, and the way back.

import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { asOf, blameOf, historyOf } from '../../client/past';
import { carryOut, planOf, restoreManagers, write } from '../../client/undelete';
import { changesOf, how, who, type Change } from '../../logic/changes';
import { pathsOfLines } from '../../logic/fields';
import { age, local } from '../../logic/format';
import type { KubeObject } from '../../logic/kubernetes';
import type { Resource } from '../../logic/resources';
import { hidden } from '../../logic/secrets';
import { isContainer, type Plan } from '../../logic/undelete';
import { checkNumbers, comparable, MAX_YAML, toYAML } from '../../logic/yaml';
import { useApp, useLoaded } from '../../parts/app';
import { changeBadge, changedText } from '../../parts/change';
import { ObjectDiff } from '../../parts/diff';
import { Editor } from '../../parts/editor';
import { attempt, toast } from '../../parts/toasts';
import { Age, Busy, Dialog, Problem, SimpleTable } from '../../parts/ui';
import { UndeleteAll } from '../../parts/undeleteall';

export function History(props: { resource: Resource; namespace: string; name: string; current: KubeObject | undefined }): JSX.Element {
  const { resource, namespace, name, current } = props;
  const [pages, setPages] = useState<Change[]>([]);
  const [more, setMore] = useState('');
  const [chosen, choose] = useState<string[]>([]);
  const [view, setView] = useState<'changes' | 'blame'>('changes');
  const [back, setBack] = useState<{ kind: 'undelete' | 'revert'; change: Change } | null>(null);
  const loaded = useLoaded(
    async (signal) => {
      const page = await historyOf(resource, namespace, name, '', false, signal);
      setPages(page.items ?? []);
      setMore(page.metadata?.continue ?? '');
      return page;
    },
    [resource, namespace, name, current?.metadata.resourceVersion],
  );
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value && !pages.length) return <Busy what="Loading the history" />;
  if (!pages.length) return <p class="empty">The server has no history of this object.</p>;
  const next = async (): Promise<void> => {
    await attempt('The history', async () => {
      const page = await historyOf(resource, namespace, name, more, false);
      setPages([...pages, ...(page.items ?? [])]);
      setMore(page.metadata?.continue ?? '');
    });
  };
  const toggle = (revision: string): void =>
    choose((old) => (old.includes(revision) ? old.filter((r) => r !== revision) : [...old.slice(-1), revision]));
  return (
    <div class="history">
      <div class="bar">
        <button aria-pressed={view === 'changes'} onClick={() => setView('changes')}>Changes</button>
        <button aria-pressed={view === 'blame'} onClick={() => setView('blame')}>Who set each field</button>
        <span class="dim">Choose two versions to compare them, or one to compare it with now.</span>
      </div>
      {view === 'blame' ? <Blame resource={resource} namespace={namespace} name={name} current={current} /> : (
        <>
          <ol class="timeline versions">
            {pages.map((c, i) => (
              <li key={c.resourceVersion + c.type}>
                <input
                  type="checkbox"
                  aria-label={`Choose version ${c.resourceVersion}`}
                  checked={chosen.includes(c.resourceVersion)}
                  disabled={c.type === 'Deleted' || c.type === 'Expired'}
                  onChange={() => toggle(c.resourceVersion)}
                />
                <span class="when" title={local(c.time)}>{c.time ? <Age time={c.time} /> : '–'}</span>
                {changeBadge(c)}
                <span class="who">
                  <strong>{who(c) || 'unknown'}</strong> <span class="dim">{how(c)}</span>
                  {c.fieldManager ? <span class="dim"> as {c.fieldManager}</span> : null}
                  {c.reason ? <span class="dim"> ({c.reason})</span> : null}
                </span>
                <span class="what">{changedText(c)}</span>
                <span class="version dim">{c.resourceVersion}</span>
                <span class="actions">
                  {current && i > 0 && c.type !== 'Deleted' && c.type !== 'Expired' && c.uid === current.metadata.uid ? (
                    <button onClick={() => setBack({ kind: 'revert', change: c })}>Revert to this</button>
                  ) : null}
                  {!current && (c.type === 'Deleted' || c.type === 'Expired') && i === 0 ? (
                    <button onClick={() => setBack({ kind: 'undelete', change: pages[i + 1] ?? c })}>Undelete</button>
                  ) : null}
                </span>
              </li>
            ))}
          </ol>
          {more ? <button onClick={() => void next()}>Older changes</button> : null}
          {chosen.length ? <Compare resource={resource} namespace={namespace} name={name} versions={chosen} current={current} /> : null}
        </>
      )}
      {back?.kind === 'undelete' && isContainer(resource) ? (
        <UndeleteAll
          title={`${resource.kind} ${name} and its content`}
          plan={() => planOf(resource, namespace, name, 'undelete')}
          close={() => {
            setBack(null);
            loaded.reload();
          }}
        />
      ) : back ? (
        <Back
          {...props}
          kind={back.kind}
          revision={back.change.resourceVersion}
          close={(done) => {
            setBack(null);
            if (done) loaded.reload();
          }}
        />
      ) : null}
    </div>
  );
}

function Compare(props: { resource: Resource; namespace: string; name: string; versions: string[]; current: KubeObject | undefined }): JSX.Element | null {
  const versions = [...props.versions].sort((a, b) => Number(a) - Number(b));
  const loaded = useLoaded(
    (signal) => Promise.all(versions.map((v) => asOf(props.resource, props.namespace, props.name, v, signal))),
    [versions.join(' ')],
  );
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading the versions" />;
  const [a, b] = loaded.value;
  const other = b ?? props.current;
  if (!a) return null;
  if (!other) return <pre class="value">{toYAML(hidden(comparable(a)))}</pre>;
  return <ObjectDiff before={a} after={other} names={[versions[0] ?? '', versions[1] ?? 'now']} />;
}

/** Blame shows who gave each field its value: beside the fields of an object, and as a table of those that were not set when it was created. */
function Blame(props: { resource: Resource; namespace: string; name: string; current: KubeObject | undefined }): JSX.Element {
  const { current } = props;
  const loaded = useLoaded(
    (signal) => blameOf(props.resource, props.namespace, props.name, signal),
    [props.resource, props.namespace, props.name, current?.metadata.resourceVersion],
  );
  const object = useMemo(() => (current ? hidden(comparable(current)) : null), [current]);
  const yaml = useMemo(() => (object ? toYAML(object) : ''), [object]);
  const paths = useMemo(() => (object && yaml.length < MAX_YAML ? pathsOfLines(object, yaml) : []), [yaml]);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Reading the history" />;
  const found = changesOf(loaded.value);
  const changed = [...found].filter(([, c]) => c.type !== 'Created');
  const created = loaded.value.changes.find((c) => c.type === 'Created');
  const rows = [...changed, ...(created ? [['everything else', created] as const] : [])];
  const text = (line: number): string => {
    const c = found.get(paths[line] ?? '');
    return c ? `${who(c) || 'unknown'}, ${how(c)}, ${age(c.time)} ago` : '';
  };
  return (
    <div class="blame">
      {current ? (
        <Editor
          readOnly
          label="Who set each field"
          value={yaml}
          note={text}
          hint={(line) => [paths[line], text(line)].filter(Boolean).join(': ')}
        />
      ) : null}
      {loaded.value.notExamined ? <p class="dim">{loaded.value.notExamined}</p> : null}
      <SimpleTable
        label="Who set each field"
        empty="No field has changed."
        head={['Field', 'Who', 'Request', 'When', 'Version']}
        rows={rows.map(([path, c]) => [<code>{path}</code>, who(c) || 'unknown', how(c), <Age time={c.time} />, c.resourceVersion])}
      />
    </div>
  );
}

/** Back brings an object back or gives it the content that it had. It shows what would happen, and asks. */
function Back(props: {
  kind: 'undelete' | 'revert';
  resource: Resource;
  namespace: string;
  name: string;
  current: KubeObject | undefined;
  revision: string;
  close: (done: boolean) => void;
}): JSX.Element {
  const app = useApp();
  const { resource, namespace, name, current, kind } = props;
  const [busy, setBusy] = useState(false);
  const send = async ({ steps: [step] }: Plan, dryRun: boolean): Promise<{ text: string; target: KubeObject }> => {
    if (!step?.object) throw new Error(step?.skip || 'the server has no such plan');
    if (kind === 'revert') {
      checkNumbers([step.object, current]);
      const target = await write(resource, step.object, 'PUT', dryRun);
      return { text: dryRun ? '' : await restoreManagers(resource, step.managedFields ?? [], target), target };
    }
    for await (const { text, created } of carryOut(app.discovery, { left: [], steps: [step] }, dryRun)) {
      if (created) return { text, target: created };
      throw new Error(text);
    }
    throw new Error('there is nothing to undelete');
  };
  const tried = useLoaded(
    async (signal) => {
      const plan = await planOf(resource, namespace, name, kind, kind === 'revert' ? props.revision : '', signal);
      return { plan, ...(await send(plan, true)) };
    },
    [props.revision],
  );
  const { value } = tried;
  const run = async (plan: Plan): Promise<void> => {
    setBusy(true);
    const ok = await attempt(kind === 'revert' ? 'Revert' : 'Undelete', async () => {
      const { text } = await send(plan, false);
      toast(text ? 'warning' : 'info', `${name} is ${kind === 'revert' ? 'reverted' : 'back'}${text ? ` (${text})` : ''}`);
    });
    setBusy(false);
    if (ok) props.close(true);
  };
  return (
    <Dialog wide title={kind === 'revert' ? `Revert ${name} to version ${props.revision}` : `Undelete ${name}`} close={() => props.close(false)}>
      {tried.error ? <Problem error={tried.error} retry={tried.reload} /> : null}
      {!value && !tried.error ? <Busy what="Trying it (dry run)" /> : null}
      {value ? (
        <>
          {value.text ? <p>It would come back ({value.text}).</p> : null}
          <ObjectDiff before={current} after={value.target} names={['now', 'after']} />
          <footer class="bar">
            <span class="dim">The server has accepted it as a dry run.</span>
            <span class="space" />
            <button class="primary" disabled={busy} onClick={() => void run(value.plan)}>
              {kind === 'revert' ? 'Revert' : 'Undelete'}
            </button>
          </footer>
        </>
      ) : null}
    </Dialog>
  );
}
