// What extends the server: APIServices, webhooks and policies, with their state and how long they take.

import type { JSX } from 'preact';
import { requestList } from '../client/request';
import { metrics } from '../client/server';
import { seconds } from '../logic/format';
import type { APIService, KubeObject } from '../logic/kubernetes';
import { objectLink } from '../logic/links';
import { quantiles, sums, type Sample } from '../logic/metrics';
import { findByKey } from '../logic/resources';
import { conditionsOf } from '../logic/status';
import { useApp, useLoaded } from '../parts/app';
import { Age, Badge, Busy, Problem, SimpleTable } from '../parts/ui';

const WANTED = /^apiserver_admission_webhook_(admission_duration_seconds|rejection_count|fail_open_count)|^apiserver_validating_admission_policy_check/;

/** Webhooks is a ValidatingWebhookConfiguration or a MutatingWebhookConfiguration. */
interface Webhooks extends KubeObject {
  webhooks?: {
    name: string;
    clientConfig?: { url?: string; service?: { namespace?: string; name?: string } };
    failurePolicy?: string;
    timeoutSeconds?: number;
  }[];
}

/** Policy is a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy. */
interface Policy extends KubeObject {
  spec?: { failurePolicy?: string };
  status?: { typeChecking?: { expressionWarnings?: unknown[] } };
}

export function Extensions(): JSX.Element {
  const app = useApp();
  const loaded = useLoaded(async (signal) => {
    const list = async <T extends KubeObject>(key: string): Promise<T[]> => {
      const r = findByKey(app.discovery, key);
      if (!r) return [];
      const path = `/apis/${r.group}/${r.version}/${r.plural}?limit=1000`;
      return (await requestList<T>(path, { signal })).items;
    };
    const [services, validating, mutating, policies, mutatingPolicies, samples] = await Promise.all([
      list<APIService>('apiservices.apiregistration.k8s.io'),
      list<Webhooks>('validatingwebhookconfigurations.admissionregistration.k8s.io'),
      list<Webhooks>('mutatingwebhookconfigurations.admissionregistration.k8s.io'),
      list<Policy>('validatingadmissionpolicies.admissionregistration.k8s.io'),
      list<Policy>('mutatingadmissionpolicies.admissionregistration.k8s.io').catch(() => []),
      metrics((name) => WANTED.test(name), signal).catch((): Sample[] => []),
    ]);
    return { services, validating, mutating, policies, mutatingPolicies, samples };
  }, []);
  if (loaded.error) return <Problem error={loaded.error} retry={loaded.reload} />;
  if (!loaded.value) return <Busy what="Loading" />;
  const { services, samples } = loaded.value;
  const latency = quantiles(samples, 'apiserver_admission_webhook_admission_duration_seconds', ['name'], 0.99);
  const rejected = sums(samples, 'apiserver_admission_webhook_rejection_count', ['name']);
  const open = sums(samples, 'apiserver_admission_webhook_fail_open_count', ['name']);
  const policyLatency = quantiles(samples, 'apiserver_validating_admission_policy_check_duration_seconds', ['policy'], 0.99);
  const href = (key: string, o: KubeObject): string => {
    const r = findByKey(app.discovery, key);
    return r ? objectLink(r, '', o.metadata.name ?? '') : '';
  };
  const webhooks = (
    [['validatingwebhookconfigurations', loaded.value.validating], ['mutatingwebhookconfigurations', loaded.value.mutating]] as const
  ).flatMap(([plural, all]) =>
    all.flatMap((c) =>
      (c.webhooks ?? []).map((w) => {
        const l = latency.get(w.name);
        return [
          <a href={href(`${plural}.admissionregistration.k8s.io`, c)}>{w.name}</a>,
          plural.startsWith('v') ? 'validating' : 'mutating',
          w.clientConfig?.url ?? [w.clientConfig?.service?.namespace, w.clientConfig?.service?.name].filter(Boolean).join('/'),
          w.failurePolicy ?? '',
          `${w.timeoutSeconds ?? ''} s`,
          l ? seconds(l.value) : '',
          l ? String(l.count) : '0',
          String(rejected.get(w.name) ?? 0),
          open.get(w.name) ? <Badge tone="bad">{String(open.get(w.name))}</Badge> : '0',
        ];
      }),
    ),
  );
  return (
    <section>
      <header class="bar"><h1>Extensions</h1><span class="space" /><button onClick={loaded.reload}>Read again</button></header>
      <h2>Extension API servers</h2>
      <SimpleTable
        label="APIServices"
        empty="There is no extension API server: all groups are served here."
        head={['Name', 'Service', 'Available', 'Since', 'Message']}
        rows={services.flatMap((s) => {
          const service = s.spec?.service;
          if (!service) return [];
          const c = conditionsOf(s).find((one) => one.type === 'Available') ?? {};
          return [[
            <a href={href('apiservices.apiregistration.k8s.io', s)}>{s.metadata.name}</a>,
            `${service.namespace ?? ''}/${service.name ?? ''}`,
            <Badge tone={c.status === 'True' ? 'good' : 'bad'}>{c.status === 'True' ? 'yes' : (c.reason ?? 'no')}</Badge>,
            <Age time={c.lastTransitionTime} />,
            c.message ?? '',
          ]];
        })}
      />
      <h2>Admission webhooks</h2>
      <SimpleTable
        label="Webhooks"
        empty="There are no admission webhooks."
        head={['Webhook', 'Type', 'Called at', 'If it fails', 'Timeout', '99 %', 'Calls', 'Refused', 'Failed open']}
        rows={webhooks}
      />
      <h2>Admission policies</h2>
      <SimpleTable
        label="Policies"
        empty="There are no admission policies."
        head={['Policy', 'Type', 'If it fails', '99 %', 'Checks', 'Warnings of its types']}
        rows={(
          [['validatingadmissionpolicies', loaded.value.policies], ['mutatingadmissionpolicies', loaded.value.mutatingPolicies]] as const
        ).flatMap(([plural, all]) =>
          all.map((p) => {
            const l = policyLatency.get(p.metadata.name ?? '');
            const warnings = p.status?.typeChecking?.expressionWarnings ?? [];
            return [
              <a href={href(`${plural}.admissionregistration.k8s.io`, p)}>{p.metadata.name}</a>,
              plural.startsWith('v') ? 'validating' : 'mutating',
              p.spec?.failurePolicy ?? '',
              l ? seconds(l.value) : '',
              l ? String(l.count) : '',
              warnings.length ? <Badge tone="warn">{String(warnings.length)}</Badge> : '0',
            ];
          }),
        )}
      />
      {app.discovery.stale.length ? <p class="warn-text">Discovery is out of date for {app.discovery.stale.join(', ')}.</p> : null}
    </section>
  );
}
