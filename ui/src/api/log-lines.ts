/** A line of the log of a server. */
export interface Line {
  server: string;
  seq: number;
  time: string;
  level: string;
  message: string;
  attributes: Record<string, string>;
}

/** How many lines the page holds. */
const most = 1_000;

/** Differs between lines. */
export const key = (l: Line) => `${l.server} ${l.seq}`;

/** Lines with more behind them, each once, the newest at the end. */
export function joined(lines: readonly Line[], more: readonly Line[]): Line[] {
  const all = new Map([...lines, ...more].map((l) => [key(l), l]));
  return [...all.values()].sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0)).slice(-most);
}
