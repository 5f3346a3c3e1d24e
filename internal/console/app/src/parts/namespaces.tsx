// The choice of a namespace. The names are read when the list is opened, and not before.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { METADATA_TYPE, requestList } from '../client/request';
import type { KubeObject } from '../logic/kubernetes';
import { TextField } from './ui';

const MOST = 1000;

export function NamespacePicker({ value, change }: { value: string; change: (ns: string) => void }): JSX.Element {
  const [names, setNames] = useState<string[]>([]);
  const load = (): void => {
    requestList<KubeObject>(`/api/v1/namespaces?limit=${MOST}`, { accept: METADATA_TYPE }).then(
      (list) => setNames(list.items.map((o) => o.metadata.name ?? '')),
      () => setNames([]), // a name can be written by hand
    );
  };
  return (
    <span class="picker">
      <label for="namespace">Namespace</label>
      <TextField
        id="namespace"
        list="namespaces"
        placeholder="all"
        value={value}
        onFocus={(e) => {
          load();
          e.currentTarget.select();
        }}
        change={change}
      />
      <datalist id="namespaces">{names.map((n) => <option key={n} value={n} />)}</datalist>
      {value ? <button class="quiet" aria-label="All namespaces" title="All namespaces" onClick={() => change('')}>✕</button> : null}
    </span>
  );
}
