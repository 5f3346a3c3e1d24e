// What can be done with an object: delete, scale, restart, cordon, suspend, approve.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { request } from '../../client/request';
import { textOf } from '../../logic/format';
import { FIELD_MANAGER, type KubeObject } from '../../logic/kubernetes';
import { objectLink, query } from '../../logic/links';
import { hasVerb, objectPath, type Resource } from '../../logic/resources';
import { at } from '../../logic/values';
import { useApp } from '../../parts/app';
import { go } from '../../parts/router';
import { attempt, toast } from '../../parts/toasts';
import { Dialog } from '../../parts/ui';

const MERGE = 'application/merge-patch+json';

const patch = (resource: Resource, o: KubeObject, body: object, subresource = ''): Promise<KubeObject> =>
  request<KubeObject>(
    objectPath(resource, o.metadata.namespace, o.metadata.name ?? '', subresource) + query({ fieldManager: FIELD_MANAGER }),
    { method: 'PATCH', contentType: MERGE, body: JSON.stringify(body) },
  );

export function Actions({ resource, object }: { resource: Resource; object: KubeObject }): JSX.Element {
  const [open, setOpen] = useState<'' | 'delete' | 'scale'>('');
  const name = object.metadata.name ?? '';
  const can = hasVerb(resource, 'patch');
  const does = (what: string, body: object): void =>
    void attempt(what, async () => {
      await patch(resource, object, body);
      toast('info', `${what}: ${name}`);
    });
  const isNode = resource.group === '' && resource.kind === 'Node';
  const isWorkload = resource.group === 'apps' && ['Deployment', 'StatefulSet', 'DaemonSet'].includes(resource.kind);
  const isCronJob = resource.group === 'batch' && ['CronJob', 'Job'].includes(resource.kind);
  return (
    <>
      {resource.subresources.has('scale') ? <button onClick={() => setOpen('scale')}>Scale</button> : null}
      {isWorkload && can ? (
        <button
          onClick={() =>
            does('Restart', {
              spec: { template: { metadata: { annotations: { 'kubectl.kubernetes.io/restartedAt': new Date().toISOString() } } } },
            })
          }
        >
          Restart
        </button>
      ) : null}
      {isNode && can ? (
        <button onClick={() => does(at(object, 'spec', 'unschedulable') ? 'Uncordon' : 'Cordon', { spec: { unschedulable: at(object, 'spec', 'unschedulable') ? null : true } })}>
          {at(object, 'spec', 'unschedulable') ? 'Uncordon' : 'Cordon'}
        </button>
      ) : null}
      {isCronJob && can ? (
        <button onClick={() => does(at(object, 'spec', 'suspend') ? 'Resume' : 'Suspend', { spec: { suspend: !at(object, 'spec', 'suspend') } })}>
          {at(object, 'spec', 'suspend') ? 'Resume' : 'Suspend'}
        </button>
      ) : null}
      {hasVerb(resource, 'delete') ? <button class="danger" onClick={() => setOpen('delete')}>Delete</button> : null}
      {open === 'delete' ? <Delete resource={resource} object={object} close={() => setOpen('')} /> : null}
      {open === 'scale' ? <Scale resource={resource} object={object} close={() => setOpen('')} /> : null}
    </>
  );
}

function Delete({ resource, object, close }: { resource: Resource; object: KubeObject; close: () => void }): JSX.Element {
  const app = useApp();
  const m = object.metadata;
  const [propagation, setPropagation] = useState('Background');
  const [grace, setGrace] = useState('');
  const run = async (): Promise<void> => {
    const done = await attempt('Delete', async () => {
      await request(objectPath(resource, m.namespace, m.name ?? ''), {
        method: 'DELETE',
        body: JSON.stringify({
          apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: propagation,
          preconditions: { uid: m.uid },
          ...(grace === '' ? {} : { gracePeriodSeconds: Number(grace) }),
        }),
      });
      toast('info', `Deletion of ${m.name ?? ''} is asked for`);
    });
    if (done) close();
  };
  return (
    <Dialog title={`Delete ${resource.kind} ${m.name ?? ''}`} close={close}>
      <fieldset>
        <legend>What it owns</legend>
        {Object.entries({ Background: 'is deleted after it', Foreground: 'is deleted before it', Orphan: 'stays, without an owner' }).map(([value, text]) => (
          <label class="check" key={value}>
            <input type="radio" name="propagation" checked={propagation === value} onChange={() => setPropagation(value)} />
            {text} <span class="dim">({value})</span>
          </label>
        ))}
      </fieldset>
      {resource.kind === 'Pod' ? (
        <label class="check">
          Grace period in seconds
          <input type="number" min={0} value={grace} placeholder="its own" onInput={(e) => setGrace(e.currentTarget.value)} />
        </label>
      ) : null}
      {m.finalizers?.length ? <p class="warn-text">It has finalizers: {m.finalizers.join(', ')}. It is gone when they are removed.</p> : null}
      <footer class="bar">
        {app.server.history && m.deletionTimestamp ? (
          <button onClick={() => go(objectLink(resource, m.namespace, m.name ?? '', 'why'))}>Why is it stuck?</button>
        ) : null}
        <span class="space" />
        <button onClick={close}>Cancel</button>
        <button class="danger" onClick={() => void run()}>Delete</button>
      </footer>
    </Dialog>
  );
}

function Scale({ resource, object, close }: { resource: Resource; object: KubeObject; close: () => void }): JSX.Element {
  const [replicas, setReplicas] = useState(textOf(at(object, 'spec', 'replicas') ?? 1));
  const run = async (): Promise<void> => {
    const done = await attempt('Scale', async () => {
      await patch(resource, object, { spec: { replicas: Number(replicas) } }, 'scale');
      toast('info', `${object.metadata.name ?? ''} is scaled to ${replicas}`);
    });
    if (done) close();
  };
  return (
    <Dialog title={`Scale ${object.metadata.name ?? ''}`} close={close}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void run();
        }}
      >
        <label>
          Replicas <input type="number" min={0} autofocus value={replicas} onInput={(e) => setReplicas(e.currentTarget.value)} />
        </label>
        <footer class="bar"><span class="space" /><button class="primary" disabled={!/^\d+$/.test(replicas)}>Scale</button></footer>
      </form>
    </Dialog>
  );
}
