// What may I, or somebody else, do: the rules that the server gives, and the binding that gives each.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { request, requestList } from '../client/request';
import type { Impersonation, KubeObject } from '../logic/kubernetes';
import { objectLink } from '../logic/links';
import { gives, grantsOf, type Binding, type Grant, type Role, type Rule } from '../logic/rbac';
import { findByKey } from '../logic/resources';
import { useApp, useLoaded } from '../parts/app';
import { NamespacePicker } from '../parts/namespaces';
import { currentNamespace } from '../parts/router';
import { Badge, Busy, Problem, SimpleTable } from '../parts/ui';

const AUTHORIZATION = '/apis/authorization.k8s.io/v1';
const RBAC = '/apis/rbac.authorization.k8s.io/v1';

/** RulesReview is a SelfSubjectRulesReview. */
interface RulesReview {
  status?: { resourceRules?: Rule[]; incomplete?: boolean; evaluationError?: string };
}

/** fieldOf returns the text in a field of a form. */
function fieldOf(form: HTMLFormElement, name: string): string {
  const value = new FormData(form).get(name);
  return typeof value === 'string' ? value.trim() : '';
}

export function Access(): JSX.Element {
  const app = useApp();
  const [namespace, setNamespace] = useState(currentNamespace() || 'default');
  const [as, setAs] = useState<Impersonation | null>(null);
  const rules = useLoaded(
    (signal) =>
      request<RulesReview>(`${AUTHORIZATION}/selfsubjectrulesreviews`, {
        method: 'POST', as, signal,
        body: JSON.stringify({ apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectRulesReview', spec: { namespace } }),
      }),
    [namespace, as],
  );
  const grants = useLoaded((signal) => bindings(namespace, as ?? { user: app.user.username, groups: app.user.groups }, signal), [namespace, as]);
  const list = rules.value?.status?.resourceRules ?? [];
  return (
    <section class="access">
      <header class="bar">
        <h1>What may {as ? as.user : 'I'} do</h1>
        <span class="space" />
        <NamespacePicker value={namespace} change={(ns) => setNamespace(ns || 'default')} />
      </header>
      <form
        class="bar filters"
        onSubmit={(e) => {
          e.preventDefault();
          const user = fieldOf(e.currentTarget, 'user');
          const groups = fieldOf(e.currentTarget, 'groups').split(',').map((g) => g.trim()).filter(Boolean);
          setAs(user ? { user, groups } : null);
        }}
      >
        <label>
          User <input name="user" type="text" spellcheck={false} placeholder={app.user.username} />
        </label>
        <label>
          Groups <input name="groups" type="text" spellcheck={false} placeholder="a, b" />
        </label>
        <button>Look</button>
        <span class="dim">Another user is impersonated: you need the permission for that.</span>
      </form>
      <Check namespace={namespace} as={as} />
      {rules.error ? <Problem error={rules.error} retry={rules.reload} /> : null}
      {!rules.value && !rules.error ? <Busy what="Asking the server" /> : null}
      {rules.value?.status?.incomplete ? <p class="warn-text">The list is not complete: {rules.value.status.evaluationError}</p> : null}
      {rules.value ? (
        <>
          <h2>Rules in {namespace}</h2>
          <SimpleTable
            label="Rules"
            empty="Nothing."
            head={['Resources', 'Groups', 'Names', 'Verbs', 'Given by']}
            rows={list.map((r) => [
              (r.resources ?? []).join(', '),
              (r.apiGroups ?? []).map((g) => g || 'core').join(', '),
              (r.resourceNames ?? []).join(', '),
              (r.verbs ?? []).join(', '),
              <Givers rule={r} grants={grants.value ?? []} />,
            ])}
          />
        </>
      ) : null}
      {grants.error ? <p class="dim">Which bindings give these rules is not readable for you.</p> : null}
    </section>
  );
}

async function bindings(namespace: string, who: Impersonation, signal: AbortSignal): Promise<Grant[]> {
  const list = async <T extends KubeObject>(path: string): Promise<T[]> => (await requestList<T>(`${RBAC}/${path}?limit=2000`, { signal })).items;
  const local = `namespaces/${encodeURIComponent(namespace)}`;
  const [locals, globals, roles, clusterRoles] = await Promise.all([
    list<Binding>(`${local}/rolebindings`), list<Binding>('clusterrolebindings'), list<Role>(`${local}/roles`), list<Role>('clusterroles'),
  ]);
  return [
    ...grantsOf(who, locals, 'rolebindings', roles, clusterRoles),
    ...grantsOf(who, globals, 'clusterrolebindings', roles, clusterRoles),
  ];
}

function Givers({ rule, grants }: { rule: Rule; grants: Grant[] }): JSX.Element {
  const app = useApp();
  const found = grants.filter((g) => gives(g, rule));
  return (
    <>
      {found.slice(0, 4).map((g, i) => {
        const r = findByKey(app.discovery, `${g.kind}.rbac.authorization.k8s.io`);
        const name = g.binding.metadata.name ?? '';
        return (
          <span key={name + g.kind}>
            {i ? ', ' : ''}
            {r ? <a href={objectLink(r, g.binding.metadata.namespace, name)}>{name}</a> : name} <span class="dim">({g.role})</span>
          </span>
        );
      })}
      {found.length > 4 ? <span class="dim"> and {found.length - 4} more</span> : null}
    </>
  );
}

/** Check asks the server about one request. */
function Check({ namespace, as }: { namespace: string; as: Impersonation | null }): JSX.Element {
  const [answer, setAnswer] = useState<{ allowed: boolean; text: string } | null>(null);
  const [error, setError] = useState<unknown>(null);
  return (
    <form
      class="bar filters"
      onSubmit={(e) => {
        e.preventDefault();
        const form = e.currentTarget;
        const text = (name: string): string => fieldOf(form, name);
        const [resource = '', ...group] = text('resource').split('.');
        const [plural, subresource] = resource.split('/');
        setError(null);
        request<{ status?: { allowed?: boolean; reason?: string; evaluationError?: string } }>(`${AUTHORIZATION}/selfsubjectaccessreviews`, {
          method: 'POST', as,
          body: JSON.stringify({
            apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview',
            spec: { resourceAttributes: { namespace, verb: text('verb'), resource: plural, subresource, group: group.join('.'), name: text('name') } },
          }),
        }).then(
          (r) => setAnswer({ allowed: !!r.status?.allowed, text: r.status?.reason ?? r.status?.evaluationError ?? '' }),
          (e2: unknown) => {
            setAnswer(null);
            setError(e2);
          },
        );
      }}
    >
      <label>
        May {as ? as.user : 'I'} <input name="verb" type="text" size={8} required placeholder="delete" aria-label="verb" />
      </label>
      <input name="resource" type="text" required placeholder="deployments.apps" aria-label="resource" />
      <input name="name" type="text" placeholder="name" aria-label="name" />
      <button>Ask</button>
      {answer ? (
        <span role="status">
          <Badge tone={answer.allowed ? 'good' : 'bad'}>{answer.allowed ? 'yes' : 'no'}</Badge> <span class="dim">{answer.text}</span>
        </span>
      ) : null}
      {error ? <Problem error={error} /> : null}
    </form>
  );
}
