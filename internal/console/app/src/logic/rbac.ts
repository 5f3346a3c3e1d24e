// Roles and bindings: who is given what, and by which binding.

import type { Impersonation, KubeObject } from './kubernetes';

/** Rule is a PolicyRule of a role, or a ResourceRule of a SelfSubjectRulesReview. */
export interface Rule {
  verbs?: string[];
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
  nonResourceURLs?: string[];
}

export interface Role extends KubeObject {
  rules?: Rule[] | null;
}

export interface Binding extends KubeObject {
  subjects?: { kind?: string; name?: string; namespace?: string }[];
  roleRef?: { kind?: string; name?: string };
}

/** Grant is a binding that is for a user, with the rules of its role. */
export interface Grant {
  binding: Binding;
  kind: 'rolebindings' | 'clusterrolebindings';
  role: string;
  rules: Rule[];
}

/** grantsOf returns the bindings that are for a user or a group of the user. */
export function grantsOf(who: Impersonation, bindings: Binding[], kind: Grant['kind'], roles: Role[], clusterRoles: Role[]): Grant[] {
  // The server adds these groups to a user who is impersonated.
  const serviceAccount = /^system:serviceaccount:([^:]+):/.exec(who.user);
  const groups = new Set([
    ...who.groups, 'system:authenticated',
    ...(serviceAccount ? ['system:serviceaccounts', `system:serviceaccounts:${serviceAccount[1]}`] : []),
  ]);
  const matches = (s: { kind?: string; name?: string; namespace?: string } | null): boolean => {
    if (s?.kind === 'User') return s.name === who.user;
    if (s?.kind === 'Group') return groups.has(s.name ?? '');
    return s?.kind === 'ServiceAccount' && who.user === `system:serviceaccount:${s.namespace}:${s.name}`;
  };
  return bindings.filter((b) => (b.subjects ?? []).some(matches))
    .map((binding) => {
      const { kind: of = '', name = '' } = binding.roleRef ?? {};
      const role = (of === 'Role' ? roles : clusterRoles).find((r) => r.metadata.name === name);
      return { binding, kind, role: `${of} ${name}`, rules: role?.rules ?? [] };
    });
}

const covers = (have: string[] = [], want: string[] = []): boolean => want.every((w) => have.includes(w) || have.includes('*'));

/** gives tells whether a grant has a rule with all of what a rule of the user has. */
export const gives = ({ rules }: Grant, rule: Rule): boolean =>
  rules.some(
    (r) =>
      covers(r.verbs, rule.verbs) && covers(r.resources, rule.resources) && covers(r.apiGroups, rule.apiGroups) &&
      (!r.resourceNames?.length || covers(r.resourceNames, rule.resourceNames)),
  );
