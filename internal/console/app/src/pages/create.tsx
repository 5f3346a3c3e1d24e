// Create or apply objects from YAML of several documents, with a result for each.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { request } from '../client/request';
import { APIError, FIELD_MANAGER, messageOf, type KubeObject } from '../logic/kubernetes';
import { objectLink, query } from '../logic/links';
import { apiVersionOf, findByKey, findByKind, listPath, objectPath } from '../logic/resources';
import { documents } from '../logic/yaml';
import { useApp } from '../parts/app';
import { Editor } from '../parts/editor';
import { currentNamespace, useLocation } from '../parts/router';
import { Badge, Check, SimpleTable } from '../parts/ui';

interface Result {
  name: string;
  ok: boolean;
  text: string;
  href?: string; // of the object, '' if there is none
}

const APPLY = 'application/apply-patch+yaml';

export function Create(): JSX.Element {
  const app = useApp();
  const { params } = useLocation();
  const kind = findByKey(app.discovery, params.get('kind') ?? '');
  const [text, setText] = useState(() => {
    const namespace = kind?.namespaced ? params.get('ns') || currentNamespace() || 'default' : '';
    return kind
      ? `apiVersion: ${apiVersionOf(kind)}\nkind: ${kind.kind}\nmetadata:\n  name: \n${namespace ? `  namespace: ${namespace}\n` : ''}`
      : '';
  });
  const [results, setResults] = useState<Result[]>([]);
  const [busy, setBusy] = useState('');
  const [error, setError] = useState('');
  const [force, setForce] = useState(false);

  const run = async (verb: 'create' | 'apply', dryRun: boolean): Promise<void> => {
    setError('');
    setResults([]);
    let objects: KubeObject[];
    try {
      objects = documents(text);
      if (!objects.length) throw new Error('there is no document');
    } catch (e) {
      setError(messageOf(e));
      return;
    }
    setBusy(`0 of ${objects.length}`);
    const done: Result[] = [];
    for (const o of objects) {
      done.push(await one(o, verb, dryRun));
      setResults([...done]);
      setBusy(`${done.length} of ${objects.length}`);
    }
    setBusy('');
  };

  const one = async (o: KubeObject, verb: 'create' | 'apply', dryRun: boolean): Promise<Result> => {
    const label = `${o.kind ?? '?'} ${o.metadata.name ?? o.metadata.generateName ?? '?'}`;
    const resource = findByKind(app.discovery, o.apiVersion ?? '', o.kind ?? '');
    if (!resource) return { name: label, ok: false, text: `the server has no ${o.kind ?? 'kind'} in ${o.apiVersion ?? 'no apiVersion'}` };
    const namespace = resource.namespaced ? o.metadata.namespace || currentNamespace() || 'default' : undefined;
    const options = { fieldManager: FIELD_MANAGER, dryRun: dryRun ? 'All' : '' };
    try {
      const sent = { ...o, metadata: { ...o.metadata, ...(namespace ? { namespace } : {}) } };
      const stored =
        verb === 'create'
          ? await request<KubeObject>(listPath(resource, namespace) + query({ ...options, fieldValidation: 'Strict' }), {
              method: 'POST', body: JSON.stringify(sent),
            })
          : await request<KubeObject>(objectPath(resource, namespace, o.metadata.name ?? '') + query({ ...options, force }), {
              method: 'PATCH', body: JSON.stringify(sent), contentType: APPLY,
            });
      const past = verb === 'create' ? 'created' : 'applied';
      return {
        name: label, ok: true, text: dryRun ? `would be ${past}` : past,
        href: dryRun ? '' : objectLink(resource, stored.metadata.namespace, stored.metadata.name ?? ''),
      };
    } catch (e) {
      const conflict = verb === 'apply' && e instanceof APIError && e.status.reason === 'Conflict';
      return { name: label, ok: false, text: messageOf(e) + (conflict ? ' ("Take over fields" applies it all the same)' : '') };
    }
  };

  return (
    <section class="create">
      <header class="bar">
        <h1>Create</h1>
        <span class="dim">Several documents are separated by ---</span>
        <span class="space" />
        <button disabled={!!busy} onClick={() => void run('create', true)}>Try (dry run)</button>
        <Check title="Apply takes fields that others own" checked={force} change={setForce}>Take over fields</Check>
        <button disabled={!!busy} onClick={() => void run('apply', false)}>Apply</button>
        <button class="primary" disabled={!!busy} onClick={() => void run('create', false)}>Create</button>
      </header>
      <Editor label="YAML to create" value={text} change={setText} save={() => void run('create', true)} />
      {error ? <div class="problem" role="alert">{error}</div> : null}
      {busy ? <p class="busy" role="status">{busy}</p> : null}
      {results.length ? (
        <SimpleTable
          label="Results"
          empty=""
          head={['Object', 'Result', 'Message']}
          rows={results.map((r) => [
            r.href ? <a href={r.href}>{r.name}</a> : r.name,
            <Badge tone={r.ok ? 'good' : 'bad'}>{r.ok ? 'ok' : 'refused'}</Badge>,
            r.text,
          ])}
        />
      ) : null}
    </section>
  );
}
