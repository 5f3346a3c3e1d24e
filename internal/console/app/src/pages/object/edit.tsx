// The YAML of an object: read, with who owns each field; changed, with what the server makes of it before it is sent.

import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { request } from '../../client/request';
import { ownersOf, ownersText, pathsOfLines } from '../../logic/fields';
import { APIError, FIELD_MANAGER, type KubeObject } from '../../logic/kubernetes';
import { query } from '../../logic/links';
import { hasVerb, objectPath, type Resource } from '../../logic/resources';
import { hidden, isSecret, restored } from '../../logic/secrets';
import { MAX_YAML, oneDocument, roundedNumber, toYAML, withoutManagedFields } from '../../logic/yaml';
import { ObjectDiff } from '../../parts/diff';
import { Editor } from '../../parts/editor';
import { attempt, toast } from '../../parts/toasts';
import { Busy, Check, Dialog, Problem } from '../../parts/ui';

export function Edit({ resource, object, gone }: { resource: Resource; object: KubeObject; gone: boolean }): JSX.Element {
  const [draft, setDraft] = useState<{ base: KubeObject; text: string } | null>(null);
  const [owners, setOwners] = useState(false);
  const [reviewing, review] = useState(false);
  const current = draft?.base ?? object;
  const [values, setValues] = useState(false); // of a Secret
  const shown = useMemo(() => withoutManagedFields(values ? current : hidden(current)), [current, values]);
  const yaml = useMemo(() => toYAML(shown), [shown]);
  const paths = useMemo(() => (yaml.length < MAX_YAML ? pathsOfLines(shown, yaml) : []), [yaml]);
  const owned = useMemo(() => ownersOf(shown, current.metadata.managedFields), [shown]);
  const hint = (line: number): string => {
    const path = paths[line];
    const found = (path && owned.get(path)) || [];
    return path ? `${path}${found.length ? `: ${ownersText(found)}` : ': no manager'}` : '';
  };
  const note = (line: number): string => {
    const path = paths[line];
    return owners && path ? ownersText(owned.get(path) ?? []) : '';
  };
  const rounded = useMemo(() => roundedNumber(object), [object]);
  const editable = hasVerb(resource, 'update') && !gone && !rounded;
  const stale = draft && draft.base.metadata.resourceVersion !== object.metadata.resourceVersion;
  useEffect(() => {
    setDraft(null);
    setValues(false);
  }, [object.metadata.uid]);
  const showValues = (): void =>
    void attempt('Show the values', () => {
      if (draft) setDraft({ ...draft, text: draft.text === yaml ? toYAML(withoutManagedFields(draft.base)) : toYAML(restored(oneDocument(draft.text), draft.base)) });
      setValues(true);
    });
  return (
    <div class="edit">
      <div class="bar">
        {editable && !draft ? <button onClick={() => setDraft({ base: object, text: yaml })}>Edit</button> : null}
        {draft ? (
          <>
            <button class="primary" disabled={draft.text === yaml} onClick={() => review(true)}>Review the change</button>
            <button onClick={() => setDraft(null)}>Cancel</button>
          </>
        ) : null}
        {rounded ? <span class="warn-text">It cannot be edited here: {rounded}.</span> : null}
        {stale ? <span class="warn-text" role="status">It has changed meanwhile (version {object.metadata.resourceVersion}).</span> : null}
        <span class="space" />
        {isSecret(current) && !values ? <button onClick={showValues}>Show the values</button> : null}
        <Check checked={owners} change={setOwners}>Show who owns each field</Check>
        <button class="quiet" onClick={() => void navigator.clipboard.writeText(draft?.text ?? yaml).then(() => toast('info', 'Copied'))}>
          Copy
        </button>
      </div>
      <Editor
        key={`${draft ? 'edit' : 'read'}-${owners}-${values}`}
        label={`YAML of ${object.metadata.name ?? ''}`}
        value={draft?.text ?? yaml}
        readOnly={!draft}
        change={(text) => draft && setDraft({ ...draft, text })}
        save={() => draft && draft.text !== yaml && review(true)}
        hint={draft ? undefined : hint}
        note={draft || !owners ? undefined : note}
      />
      {draft && reviewing ? (
        <Review
          resource={resource}
          base={draft.base}
          text={draft.text}
          values={values}
          close={(done) => {
            review(false);
            if (done) setDraft(null);
          }}
        />
      ) : null}
    </div>
  );
}

/** Review sends the change as a dry run, shows what the server would store, and sends it. */
function Review(props: { resource: Resource; base: KubeObject; text: string; values: boolean; close: (done: boolean) => void }): JSX.Element {
  const { resource, base, text, values } = props;
  const [result, setResult] = useState<KubeObject | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [latest, setLatest] = useState<KubeObject | null>(null);
  const path = objectPath(resource, base.metadata.namespace, base.metadata.name ?? '');
  const body = (): string => JSON.stringify(restored(oneDocument(text), base));
  const put = (dryRun: boolean): Promise<KubeObject> =>
    request<KubeObject>(path + query({ dryRun: dryRun ? 'All' : '', fieldManager: FIELD_MANAGER, fieldValidation: 'Strict' }), {
      method: 'PUT',
      body: body(),
    });
  const failed = async (e: unknown): Promise<void> => {
    setError(e);
    if (e instanceof APIError && e.code === 409) setLatest(await request<KubeObject>(path).catch(() => null));
  };
  useEffect(() => {
    let closed = false;
    Promise.resolve().then(() => put(true)).then((o) => closed || setResult(o), (e: unknown) => closed || void failed(e));
    return () => {
      closed = true;
    };
  }, []);
  const save = async (): Promise<void> => {
    setBusy(true);
    try {
      await put(false);
      toast('info', `${base.metadata.name ?? ''} is changed`);
      props.close(true);
    } catch (e) {
      await failed(e);
    }
    setBusy(false);
  };
  return (
    <Dialog wide title="Review the change" close={() => props.close(false)}>
      {!result && !error ? <Busy what="Asking the server (dry run)" /> : null}
      {error ? <Problem error={error} /> : null}
      {latest ? <Conflict base={base} latest={latest} values={values} /> : null}
      {result && !error ? <ObjectDiff before={base} after={result} names={['now', 'after']} values={values} /> : null}
      <footer class="bar">
        {result && !error ? <span class="dim">The server has accepted it as a dry run.</span> : null}
        <span class="space" />
        <button onClick={() => props.close(false)}>Back to the editor</button>
        <button class="primary" disabled={!result || busy || !!error} onClick={() => void attempt('Save', save)}>Save</button>
      </footer>
    </Dialog>
  );
}

/** Conflict explains a refusal because somebody else was faster: what they changed, and who they are. */
function Conflict({ base, latest, values }: { base: KubeObject; latest: KubeObject; values: boolean }): JSX.Element {
  const before = new Map((base.metadata.managedFields ?? []).map((m) => [`${m.manager}/${m.operation}/${m.subresource}`, m.time]));
  const others = (latest.metadata.managedFields ?? []).filter(
    (m) => before.get(`${m.manager}/${m.operation}/${m.subresource}`) !== m.time,
  );
  const names = [...new Set(others.map((m) => m.manager ?? ''))].filter(Boolean);
  return (
    <div class="problem">
      <p>
        {names.length ? `${names.join(', ')} changed it` : 'It was changed'} since you began (version{' '}
        {base.metadata.resourceVersion} is now {latest.metadata.resourceVersion}). This is the other change; edit again to add yours
        to it.
      </p>
      <ObjectDiff before={base} after={latest} names={['when you began', 'now']} values={values} />
    </div>
  );
}
