// The log of a container as plain text.

import type { KubeObject } from './kubernetes';
import { listAt, textAt } from './values';

/** A line is cut after this many characters. */
const LONGEST = 20_000;

/** plain removes escape sequences and other control characters: a log must not draw on the page or hide text in it. */
export function plain(text: string): string {
  return (text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text)
    .replace(/\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?/g, '') // OSC
    .replace(/\u001b[[(][0-?]*[ -/]*[@-~]?/g, '') // CSI
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, '');
}

/** containersOf returns the names of the containers of a pod, those that it is for first. */
export const containersOf = (pod: KubeObject): string[] =>
  ['containers', 'initContainers', 'ephemeralContainers'].flatMap((list) => listAt(pod, 'spec', list).map((c) => textAt(c, 'name')));
