// The log of a container as plain text.

import type { KubeObject, Value } from './kubernetes';

/** A line is cut after this many characters. */
const LONGEST = 20_000;

/** plain removes escape sequences and other control characters: a log must not draw on the page or hide text in it. */
export function plain(text: string): string {
  return (text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text)
    .replace(/\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?/g, '') // OSC
    .replace(/\u001b[[(][0-?]*[ -/]*[@-~]?/g, '') // CSI
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, '');
}

export function containersOf(pod: KubeObject): string[] {
  const names = (list: Value): string[] => (Array.isArray(list) ? list.map((c) => String(c?.name ?? '')) : []);
  return [...names(pod.spec?.containers), ...names(pod.spec?.initContainers), ...names(pod.spec?.ephemeralContainers)];
}
