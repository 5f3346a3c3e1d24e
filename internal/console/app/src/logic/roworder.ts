// The order of the rows of a list, and which of them are shown. Rows change up to once a frame, and sorting ten thousand of them
// takes longer than a frame: a sorted or filtered list is made again a few times a second, from the order before.

import type { Row } from './tables';

/** RowSet is the rows of a list. generation changes with every change of them, membership when there are others. */
export interface RowSet {
  rows: Map<string, Row>;
  generation: number;
  membership: number;
}

export interface Choice {
  /** Part of the name or namespace, in lower case. */
  text: string;
  /** Which rows are shown; undefined for all. */
  only?: ((row: Row) => boolean) | undefined;
  /** What rows are sorted by; undefined for the order of the server. Rows for which it returns undefined are the last ones. */
  by?: ((row: Row) => unknown) | undefined;
  down: boolean;
  /** Changes with only, by and down. */
  key: string;
}

/** The least time in milliseconds between two sorts of many rows. */
const PAUSE = 250;
const MANY = 500;

const collator = new Intl.Collator(undefined, { numeric: true });

/** compare orders numbers before text. */
function compare(a: unknown, b: unknown): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  if (typeof a === 'number' || typeof b === 'number') return typeof a === 'number' ? -1 : 1;
  return collator.compare(String(a), String(b));
}

/** RowOrder sorts and filters the rows of one list at a time, and remembers the order before. */
export class RowOrder {
  private store: RowSet | null = null;
  private membership = -1;
  private generation = -1;
  private text = '';
  private key = '';
  private named: Row[] = []; // the rows with text
  private shown: Row[] = [];
  private made = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** later is called when the rows have to be asked for again. */
  constructor(private readonly later: () => void) {}

  /** rows returns the rows to show. The caller must not change the result. */
  rows(store: RowSet | null, choice: Choice): Row[] {
    if (!store) return [];
    const other = store !== this.store || choice.text !== this.text;
    const changed = other || store.membership !== this.membership;
    if (changed) {
      this.named = [...store.rows.values()];
      if (choice.text) {
        this.named = this.named.filter((r) => r.name.toLowerCase().includes(choice.text) || r.namespace.toLowerCase().includes(choice.text));
      }
      [this.store, this.membership, this.text] = [store, store.membership, choice.text];
    }
    if (!choice.only && !choice.by) {
      [this.shown, this.key] = [this.named, choice.key];
      return this.shown;
    }
    if (!other && choice.key === this.key && store.generation === this.generation && !changed) return this.shown;
    const wait = this.made + PAUSE - performance.now();
    if (!other && choice.key === this.key && this.named.length > MANY && wait > 0) {
      clearTimeout(this.timer);
      this.timer = setTimeout(this.later, wait);
      return this.shown; // generation stays: the next call looks again
    }
    this.shown = this.sorted(choice);
    [this.key, this.generation, this.made] = [choice.key, store.generation, performance.now()];
    return this.shown;
  }

  close(): void {
    clearTimeout(this.timer);
  }

  private sorted({ only, by, down }: Choice): Row[] {
    // Most of the rows are in order already, which sort makes use of.
    const now = new Set(this.named);
    const before = this.shown.filter((r) => now.delete(r));
    const rows = [...before, ...now].filter((r) => !only || only(r));
    if (!by) {
      const at = new Map(this.named.map((r, i) => [r, i]));
      return rows.sort((a, b) => (at.get(a) ?? 0) - (at.get(b) ?? 0));
    }
    const sign = down ? -1 : 1;
    return rows.map((row) => ({ row, value: by(row) }))
      .sort((a, b) => {
        const [noA, noB] = [a.value === undefined, b.value === undefined];
        if (noA !== noB) return noA ? 1 : -1;
        return sign * ((noA ? 0 : compare(a.value, b.value)) || compare(a.row.key, b.row.key));
      })
      .map(({ row }) => row);
  }
}
