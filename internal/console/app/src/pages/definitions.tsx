// Custom resources: the schema of a definition as a page to read, and a form made of it.

import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { request, requestList } from '../client/request';
import { textOf } from '../logic/format';
import { FIELD_MANAGER, messageOf, type KubeObject } from '../logic/kubernetes';
import { link, objectLink, query } from '../logic/links';
import { findByKey, listPath, type Resource } from '../logic/resources';
import { convert, limits, simpleFields, typeOf, type Definition, type Schema, type SimpleField } from '../logic/schema';
import { conditionsOf } from '../logic/status';
import { put } from '../logic/values';
import { toYAML } from '../logic/yaml';
import { useApp, useLoaded } from '../parts/app';
import { currentNamespace, go, listLink } from '../parts/router';
import { toast } from '../parts/toasts';
import { Badge, Busy, Facts, Problem, SimpleTable } from '../parts/ui';

const PATH = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';

export function Definitions(): JSX.Element {
  const loaded = useLoaded((signal) => requestList<Definition>(`${PATH}?limit=2000`, { signal }), []);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading" />;
  return (
    <section>
      <header class="bar"><h1>Custom resources</h1><span class="count">{loaded.value.items.length}</span></header>
      <SimpleTable
        label="Definitions"
        empty="There are no custom resource definitions."
        head={['Kind', 'Group', 'Versions', 'Scope', 'Established']}
        rows={loaded.value.items.map((d) => {
          const established = conditionsOf(d).some((c) => c.type === 'Established' && c.status === 'True');
          return [
            <a href={link(['definitions', d.metadata.name ?? ''])}>{d.spec?.names?.kind}</a>,
            d.spec?.group,
            (d.spec?.versions ?? []).map((v) => v.name).join(', '),
            d.spec?.scope,
            <Badge tone={established ? 'good' : 'bad'}>{established ? 'yes' : 'no'}</Badge>,
          ];
        })}
      />
    </section>
  );
}

export function DefinitionView({ name }: { name: string }): JSX.Element {
  const app = useApp();
  const loaded = useLoaded((signal) => request<Definition>(`${PATH}/${encodeURIComponent(name)}`, { signal }), [name]);
  const [version, setVersion] = useState('');
  const served = !!findByKey(app.discovery, name);
  useEffect(() => {
    if (loaded.value && !served) void app.refreshDiscovery().catch(() => {}); // it may be newer than what the page knows
  }, [loaded.value, served]);
  const [form, setForm] = useState(false);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading" />;
  const d = loaded.value;
  const { group = '', names = {}, versions = [], scope } = d.spec ?? {};
  const shown = versions.find((v) => v.name === version) ?? versions.find((v) => v.storage) ?? versions[0];
  const schema: Schema = shown?.schema?.openAPIV3Schema ?? {};
  const resource = findByKey(app.discovery, `${names.plural ?? ''}.${group}`);
  const definitions = findByKey(app.discovery, 'customresourcedefinitions.apiextensions.k8s.io');
  return (
    <section class="definition">
      <header class="bar">
        <h1>
          {names.kind} <span class="dim group">{group}</span>
        </h1>
        <span class="space" />
        <label>
          Version{' '}
          <select value={shown?.name ?? ''} onChange={(e) => setVersion(e.currentTarget.value)}>
            {versions.map((v) => <option key={v.name}>{v.name}</option>)}
          </select>
        </label>
        {resource ? <a class="button" href={listLink(resource)}>Objects</a> : null}
        {definitions ? <a class="button" href={objectLink(definitions, '', name)}>Definition</a> : null}
        <button aria-pressed={form} onClick={() => setForm(!form)}>{form ? 'Schema' : 'Create with a form'}</button>
      </header>
      {schema.description ? <p>{schema.description}</p> : null}
      <Facts
        items={[
          ['Served', shown?.served ? 'yes' : 'no'],
          ['Stored', shown?.storage ? 'yes' : 'no'],
          ['Deprecated', shown?.deprecated ? (shown.deprecationWarning ?? 'yes') : ''],
          ['Short names', (names.shortNames ?? []).join(', ')],
        ]}
      />
      {form ? (
        <Form
          key={shown?.name}
          schema={schema}
          base={{ apiVersion: `${group}/${shown?.name ?? ''}`, kind: names.kind ?? '' }}
          namespaced={scope === 'Namespaced'}
          resource={resource && { ...resource, version: shown?.name ?? '' }}
        />
      ) : (
        <ul class="schema">
          {Object.entries(schema.properties ?? {}).filter(([key]) => !['apiVersion', 'kind', 'metadata'].includes(key))
            .map(([key, s]) => <Property key={key} name={key} schema={s} required={schema.required?.includes(key) ?? false} depth={0} />)}
        </ul>
      )}
    </section>
  );
}

function Property(props: { name: string; schema: Schema; required: boolean; depth: number }): JSX.Element {
  const { schema: s, depth } = props;
  const below = s.properties ?? s.items?.properties ?? (typeof s.additionalProperties === 'object' ? s.additionalProperties.properties : undefined);
  const required = s.required ?? s.items?.required ?? [];
  const head = (
    <>
      <code>{props.name}</code> <span class="dim">{typeOf(s)}</span> {props.required ? <Badge tone="warn">required</Badge> : null}
    </>
  );
  const about = (
    <>
      {s.description ? <p>{s.description}</p> : null}
      {limits(s).length ? <p class="dim">{limits(s).join('; ')}</p> : null}
      {(s['x-kubernetes-validations'] ?? []).map((v) => (
        <p key={v.rule} class="dim">
          <code>{v.rule}</code> {v.message}
        </p>
      ))}
    </>
  );
  if (!below || depth > 20) {
    return <li>{head}{about}</li>;
  }
  return (
    <li>
      <details open={depth < 2}>
        <summary>{head}</summary>
        {about}
        <ul>
          {Object.entries(below).map(([key, one]) => (
            <Property key={key} name={key} schema={one} required={required.includes(key)} depth={depth + 1} />
          ))}
        </ul>
      </details>
    </li>
  );
}

/** Form makes an object from fields. What has no simple field, such as a list of objects, is added as YAML on the next page. */
function Form(props: {
  schema: Schema;
  base: { apiVersion: string; kind: string };
  namespaced: boolean;
  resource: Resource | undefined;
}): JSX.Element {
  const { resource } = props;
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState(currentNamespace() || 'default');
  const [values, setValues] = useState<Map<string, string>>(new Map());
  const [error, setError] = useState<unknown>(null);
  const fields = useMemo(() => simpleFields(props.schema), [props.schema]);
  const object = useMemo(() => {
    const o: KubeObject = { ...props.base, metadata: { name, ...(props.namespaced ? { namespace } : {}) } };
    for (const f of fields) {
      const text = values.get(f.path.join('.'));
      if (text) put(o, f.path, convert(f.schema, text));
    }
    return o;
  }, [name, namespace, values, fields]);
  const create = async (): Promise<void> => {
    if (!resource) {
      setError(new Error('the server does not serve this kind'));
      return;
    }
    try {
      await request(listPath(resource, namespace) + query({ fieldManager: FIELD_MANAGER, fieldValidation: 'Strict' }), {
        method: 'POST', body: JSON.stringify(object),
      });
      toast('info', `${name} is created`);
      go(objectLink(resource, props.namespaced ? namespace : '', name));
    } catch (e) {
      setError(e);
    }
  };
  return (
    <div class="columns">
      <form
        class="fields"
        onSubmit={(e) => {
          e.preventDefault();
          setError(null);
          create().catch((e2: unknown) => setError(new Error(messageOf(e2))));
        }}
      >
        <label>
          name <input type="text" required value={name} onInput={(e) => setName(e.currentTarget.value)} />
        </label>
        {props.namespaced ? (
          <label>
            namespace <input type="text" required value={namespace} onInput={(e) => setNamespace(e.currentTarget.value)} />
          </label>
        ) : null}
        {fields.map((f) => (
          <Field key={f.path.join('.')} field={f} value={values.get(f.path.join('.')) ?? ''} change={(text) => setValues((old) => new Map(old).set(f.path.join('.'), text))} />
        ))}
        {error ? <Problem error={error} /> : null}
        <button class="primary">Create</button>
      </form>
      <div><h2>What is sent</h2><pre class="value">{toYAML(object)}</pre></div>
    </div>
  );
}

function Field({ field, value, change }: { field: SimpleField; value: string; change: (text: string) => void }): JSX.Element {
  const { schema: s } = field;
  const label = field.path.join('.');
  const choices = s.enum?.map(String) ?? (s.type === 'boolean' ? ['true', 'false'] : undefined);
  return (
    <label title={s.description}>
      {label}
      {field.required ? ' *' : ''}{' '}
      {choices ? (
        <select value={value} onChange={(e) => change(e.currentTarget.value)}>
          <option value="" />
          {choices.map((c) => <option key={c}>{c}</option>)}
        </select>
      ) : (
        <input
          type="text"
          inputMode={s.type === 'integer' || s.type === 'number' ? 'decimal' : 'text'}
          required={field.required && s.default === undefined}
          placeholder={s.default !== undefined ? textOf(s.default) : s.type === 'array' ? 'a, b' : ''}
          value={value}
          onInput={(e) => change(e.currentTarget.value)}
        />
      )}
    </label>
  );
}
