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

/** APIError is an answer other than 2xx, or an ERROR of a watch. */
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
  generateName?: string;
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

/** KubeObject is an object of any kind. What a kind has beside its metadata is not known here: see values.ts. */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
  [key: string]: unknown;
}

/** Condition is one of .status.conditions. Those of custom resources follow the convention, or do not. */
export interface Condition {
  type?: string;
  status?: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
  lastUpdateTime?: string;
}

/** APIService is one of apiregistration.k8s.io: a group and version, and the service that answers for it if the server itself does not. */
export interface APIService extends KubeObject {
  spec?: { group?: string; version?: string; service?: { namespace?: string; name?: string } };
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

export interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
  object: T;
}

/** FIELD_MANAGER is the name under which the page writes. */
export const FIELD_MANAGER = 'keelson-console';

/** isAbort tells whether a request ended because nobody waits for it any more. */
export const isAbort = (e: unknown): boolean => e instanceof DOMException && e.name === 'AbortError';

export const messageOf = (e: unknown): string => (e instanceof Error ? e.message : String(e));
