// Custom resources: the schema of a definition as a page to read, and a form made of it.

import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { messageOf, query, request, requestList, type KubeObject, type Value } from './api';
import { toast, useApp, useLoaded } from './app';
import { findByKey, listPath } from './discovery';
import { currentNamespace, go, link, listLink, objectLink } from './router';
import { Badge, Busy, Facts, Problem, SimpleTable } from './ui';
import { toYAML } from './yaml';

const PATH = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';

interface Schema {
  type?: string;
  description?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  required?: string[];
  enum?: Value[];
  default?: Value;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  nullable?: boolean;
  additionalProperties?: Schema | boolean;
  'x-kubernetes-int-or-string'?: boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  'x-kubernetes-validations'?: { rule: string; message?: string }[];
}

export function Definitions(): JSX.Element {
  const loaded = useLoaded((signal) => requestList<KubeObject>(`${PATH}?limit=2000`, { signal }), []);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading" />;
  return (
    <section>
      <header class="bar">
        <h1>Custom resources</h1>
        <span class="count">{loaded.value.items.length}</span>
      </header>
      <SimpleTable
        label="Definitions"
        empty="There are no custom resource definitions."
        head={['Kind', 'Group', 'Versions', 'Scope', 'Established']}
        rows={loaded.value.items.map((d) => {
          const established = d.status?.conditions?.find((c: Value) => c.type === 'Established')?.status === 'True';
          return [
            <a href={link(['definitions', d.metadata.name ?? ''])}>{d.spec?.names?.kind}</a>,
            d.spec?.group,
            (d.spec?.versions ?? []).map((v: Value) => v.name).join(', '),
            d.spec?.scope,
            <Badge tone={established ? 'good' : 'bad'}>{established ? 'yes' : 'no'}</Badge>,
          ];
        })}
      />
    </section>
  );
}

export function Definition({ name }: { name: string }): JSX.Element {
  const app = useApp();
  const loaded = useLoaded((signal) => request<KubeObject>(`${PATH}/${encodeURIComponent(name)}`, { signal }), [name]);
  const [version, setVersion] = useState('');
  const served = !!findByKey(app.discovery, name);
  useEffect(() => {
    if (loaded.value && !served) void app.refreshDiscovery().catch(() => {}); // it may be newer than what the page knows
  }, [loaded.value, served]);
  const [form, setForm] = useState(false);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading" />;
  const d = loaded.value;
  const versions: Value[] = d.spec?.versions ?? [];
  const shown = versions.find((v) => v.name === version) ?? versions.find((v) => v.storage) ?? versions[0];
  const schema: Schema = shown?.schema?.openAPIV3Schema ?? {};
  const resource = findByKey(app.discovery, `${d.spec?.names?.plural}.${d.spec?.group}`);
  const definitions = findByKey(app.discovery, 'customresourcedefinitions.apiextensions.k8s.io');
  return (
    <section class="definition">
      <header class="bar">
        <h1>
          {d.spec?.names?.kind} <span class="dim group">{d.spec?.group}</span>
        </h1>
        <span class="space" />
        <label>
          Version{' '}
          <select value={shown?.name} onChange={(e) => setVersion(e.currentTarget.value)}>
            {versions.map((v) => (
              <option key={v.name}>{v.name}</option>
            ))}
          </select>
        </label>
        {resource ? <a class="button" href={listLink(resource)}>Objects</a> : null}
        {definitions ? <a class="button" href={objectLink(definitions, '', name)}>Definition</a> : null}
        <button aria-pressed={form} onClick={() => setForm(!form)}>
          {form ? 'Schema' : 'Create with a form'}
        </button>
      </header>
      {schema.description ? <p>{schema.description}</p> : null}
      <Facts
        items={[
          ['Served', shown?.served ? 'yes' : 'no'],
          ['Stored', shown?.storage ? 'yes' : 'no'],
          ['Deprecated', shown?.deprecated ? (shown.deprecationWarning ?? 'yes') : ''],
          ['Short names', (d.spec?.names?.shortNames ?? []).join(', ')],
        ]}
      />
      {form ? (
        <Form
          key={shown?.name}
          schema={schema}
          base={{ apiVersion: `${d.spec?.group}/${shown?.name}`, kind: d.spec?.names?.kind }}
          namespaced={d.spec?.scope === 'Namespaced'}
          plural={d.spec?.names?.plural}
          group={d.spec?.group}
        />
      ) : (
        <ul class="schema">
          {Object.entries(schema.properties ?? {})
            .filter(([key]) => !['apiVersion', 'kind', 'metadata'].includes(key))
            .map(([key, s]) => (
              <Property key={key} name={key} schema={s} required={schema.required?.includes(key) ?? false} depth={0} />
            ))}
        </ul>
      )}
    </section>
  );
}

function typeOf(s: Schema): string {
  if (s['x-kubernetes-int-or-string']) return 'integer or string';
  if (s.type === 'array') return `list of ${s.items ? typeOf(s.items) : 'anything'}`;
  if (s.type === 'object' && typeof s.additionalProperties === 'object') return `map of ${typeOf(s.additionalProperties)}`;
  return `${s.type ?? 'anything'}${s.format ? ` (${s.format})` : ''}`;
}

function limits(s: Schema): string[] {
  const out: string[] = [];
  if (s.enum) out.push(`one of ${s.enum.map(String).join(', ')}`);
  if (s.default !== undefined) out.push(`default ${JSON.stringify(s.default)}`);
  if (s.minimum !== undefined) out.push(`at least ${s.minimum}`);
  if (s.maximum !== undefined) out.push(`at most ${s.maximum}`);
  if (s.minLength !== undefined) out.push(`at least ${s.minLength} characters`);
  if (s.maxLength !== undefined) out.push(`at most ${s.maxLength} characters`);
  if (s.maxItems !== undefined) out.push(`at most ${s.maxItems}`);
  if (s.pattern) out.push(`matches ${s.pattern}`);
  if (s.nullable) out.push('may be null');
  return out;
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
    return (
      <li>
        {head}
        {about}
      </li>
    );
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
  plural: string;
  group: string;
}): JSX.Element {
  const app = useApp();
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState(currentNamespace() || 'default');
  const [values, setValues] = useState<Map<string, string>>(new Map());
  const [error, setError] = useState<unknown>(null);
  const fields = useMemo(() => simpleFields(props.schema), [props.schema]);
  const object = useMemo(() => {
    const o: KubeObject = { ...props.base, metadata: { name, ...(props.namespaced ? { namespace } : {}) } };
    for (const f of fields) {
      const text = values.get(f.path.join('.'));
      if (text === undefined || text === '') continue;
      let at: Value = o;
      for (const part of f.path.slice(0, -1)) at = at[part] ??= {};
      at[f.path[f.path.length - 1]] = convert(f.schema, text);
    }
    return o;
  }, [name, namespace, values, fields]);
  const create = async (): Promise<void> => {
    const resource = findByKey(app.discovery, `${props.plural}.${props.group}`);
    if (!resource) {
      setError(new Error('the server does not serve this kind'));
      return;
    }
    try {
      await request(listPath({ ...resource, version: props.base.apiVersion.split('/')[1] }, namespace) + query({ fieldManager: 'keelson-console', fieldValidation: 'Strict' }), {
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
      <div>
        <h2>What is sent</h2>
        <pre class="value">{toYAML(object)}</pre>
      </div>
    </div>
  );
}

interface SimpleField {
  path: string[];
  schema: Schema;
  required: boolean;
}

const MOST_FIELDS = 80;

function simpleFields(schema: Schema): SimpleField[] {
  const out: SimpleField[] = [];
  const visit = (s: Schema, path: string[], required: boolean): void => {
    if (out.length >= MOST_FIELDS || path.length > 5 || path.some((part) => part in Object.prototype)) return;
    if (s.properties) {
      for (const [key, one] of Object.entries(s.properties)) visit(one, [...path, key], required && (s.required?.includes(key) ?? false));
      return;
    }
    const texts = s.type === 'array' && (s.items?.type === 'string' || s.items?.type === 'integer');
    if (texts || ['string', 'integer', 'number', 'boolean'].includes(s.type ?? '') || s['x-kubernetes-int-or-string']) {
      out.push({ path, schema: s, required });
    }
  };
  for (const [key, s] of Object.entries(schema.properties ?? {})) {
    if (!['apiVersion', 'kind', 'metadata', 'status'].includes(key)) visit(s, [key], schema.required?.includes(key) ?? false);
  }
  return out;
}

function convert(s: Schema, text: string): Value {
  if (s.type === 'array') return text.split(',').map((t) => convert(s.items ?? {}, t.trim())).filter((v) => v !== '');
  if (s.type === 'boolean') return text === 'true';
  if (s.type === 'integer' || s.type === 'number') return Number(text);
  if (s['x-kubernetes-int-or-string'] && /^-?\d+$/.test(text)) return Number(text);
  return text;
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
          {choices.map((c) => (
            <option key={c}>{c}</option>
          ))}
        </select>
      ) : (
        <input
          type="text"
          inputMode={s.type === 'integer' || s.type === 'number' ? 'decimal' : 'text'}
          required={field.required && s.default === undefined}
          placeholder={s.default !== undefined ? String(s.default) : s.type === 'array' ? 'a, b' : ''}
          value={value}
          onInput={(e) => change(e.currentTarget.value)}
        />
      )}
    </label>
  );
}
