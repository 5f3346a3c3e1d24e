// Times, sizes and values as text, for people.

/** age is how long ago a time is, as kubectl writes it: 5s, 3m, 2h, 4d. */
export function age(time: string | undefined, now = Date.now()): string {
  if (!time) return '';
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (Number.isNaN(seconds)) return '';
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  return days < 730 ? `${days}d` : `${Math.floor(days / 365)}y`;
}

/** local is a time in the time zone and language of the browser. Text that is no time stays as it is. */
export function local(time: string | undefined): string {
  if (!time) return '';
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? time : at.toLocaleString();
}

export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

/** seconds is a duration, given in seconds, in µs, ms or s. */
export function seconds(n: number): string {
  if (!Number.isFinite(n)) return '';
  if (n < 0.001) return `${Math.round(n * 1e6)} µs`;
  if (n < 1) return `${n < 0.01 ? (n * 1000).toFixed(1) : Math.round(n * 1000)} ms`;
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} s`;
}

/** textOf returns a value as text. Members of custom resources may be anything, even objects that String cannot convert. */
export const textOf = (value: unknown): string =>
  value === null || value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value);
