// What the palette goes to, and what it finds for a text.

export interface Target {
  text: string;
  detail: string;
  href: string;
  /** What it is found by, in lower case and separated by blanks. */
  words: string;
}

const MOST = 12;

/** bestOf returns what a text may mean, the best first: a word of it, then the beginning of one, then a part of one. */
export function bestOf(targets: Target[], text: string): Target[] {
  const want = text.toLowerCase().trim();
  const rank = ({ words }: Target): number => {
    const all = words.split(' ');
    if (all.includes(want)) return 0;
    if (all.some((w) => w.startsWith(want))) return 1;
    return words.includes(want) ? 2 : 3;
  };
  return targets.map((t) => ({ t, r: rank(t) })).filter((x) => x.r < 3).sort((a, b) => a.r - b.r).slice(0, MOST).map((x) => x.t);
}
