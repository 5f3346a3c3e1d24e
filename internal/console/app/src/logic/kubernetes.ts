// The types of the Kubernetes API that the page knows, and its errors.

export interface Impersonation {
  user: string;
  groups: string[];
}

/** Status is the error answer of a Kubernetes API server. */
export interface Status {
  kind?: string;
  code?: number;
  reason?: string;
  message?: string;
  details?: { causes?: { field?: string; message?: string; reason?: string }[]; retryAfterSeconds?: number };
}

export class APIError extends Error {
  constructor(
    readonly code: number,
    readonly status: Status,
  ) {
    super(status.message || `the server answered ${code}`);
  }
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

export interface ManagedFields {
  manager?: string;
  operation?: string;
  time?: string;
  subresource?: string;
  fieldsV1?: Record<string, unknown>;
}

export interface Metadata {
  name?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  finalizers?: string[];
  managedFields?: ManagedFields[];
  [key: string]: unknown;
}

// An object of any kind: what is in it is not known here.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Value = any;

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
  [key: string]: Value;
}

export interface ListOf<T> {
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items: T[];
}

export interface Column {
  name: string;
  type: string;
  format?: string;
  description?: string;
  priority: number;
}

export interface TableRow {
  cells: Value[];
  object: KubeObject;
}

export interface Table {
  columnDefinitions?: Column[];
  rows?: TableRow[];
  metadata: ListOf<unknown>['metadata'];
}

export interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
  object: T;
}

export const isAbort = (e: unknown): boolean => e instanceof DOMException && e.name === 'AbortError';

export const messageOf = (e: unknown): string => (e instanceof Error ? e.message : String(e));
