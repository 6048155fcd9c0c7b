/** 840 ms, 2.4 s, 3 m 10 s, 4 d 15 h */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} m ${Math.round((ms % 60_000) / 1000)} s`;
  if (ms >= 48 * 3_600_000) return `${Math.floor(ms / 86_400_000)} d ${Math.floor((ms % 86_400_000) / 3_600_000)} h`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} m`;
}

/** 340, 1.2k, 3.4M */
export function count(n: number): string {
  if (n < 1_000) return String(n);
  if (n < 1_000_000) return `${(n / 1_000).toFixed(1)}k`;
  return `${(n / 1_000_000).toFixed(1)}M`;
}

/** $0.0042, $1.25 */
export const dollars = (n: number) => `$${n < 0.1 ? n.toPrecision(2) : n.toFixed(2)}`;

/** 512 B, 3.4 MB */
export function bytes(n: number): string {
  if (n < 1_000) return `${n} B`;
  if (n < 1_000_000) return `${(n / 1_000).toFixed(1)} kB`;
  if (n < 1_000_000_000) return `${(n / 1_000_000).toFixed(1)} MB`;
  return `${(n / 1_000_000_000).toFixed(2)} GB`;
}

/** now, 5 m, 3 h, 2 d, then the date */
export function age(time: string, now = Date.now()): string {
  const seconds = (now - Date.parse(time)) / 1000;
  if (seconds < 60) return "now";
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h`;
  if (seconds < 7 * 86_400) return `${Math.floor(seconds / 86_400)} d`;
  return time.slice(0, 10);
}

/** A time by the clock of the reader, and in UTC. */
export const exact = (time: string) => `${new Date(time).toLocaleString()} (${inUTC(time).replace("T", " ").slice(0, 19)} UTC)`;

/** A time in UTC; as it is when it is none. */
export const inUTC = (time: string) => (Number.isNaN(Date.parse(time)) ? time : new Date(time).toISOString());

/** Mon 2026-11-30 09:15 +01:00: a time as clocks of a zone show it. A zone that the browser does not know is shown as UTC. */
export function inZone(time: string, zone: string): string {
  const at = new Date(time);
  const seconds = at.getUTCSeconds();
  const parts = (timeZone: string) =>
    new Intl.DateTimeFormat("en-GB", { timeZone, weekday: "short", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "longOffset" }).formatToParts(at);
  let found: Intl.DateTimeFormatPart[];
  try {
    found = parts(zone);
  } catch {
    found = parts("UTC");
  }
  const part = (type: Intl.DateTimeFormatPartTypes) => found.find((p) => p.type === type)?.value ?? "";
  return `${part("weekday")} ${part("year")}-${part("month")}-${part("day")} ${part("hour")}:${part("minute")}${seconds ? `:${String(seconds).padStart(2, "0")}` : ""} ${part("timeZoneName").replace("GMT", "") || "+00:00"}`;
}

/** "1 run", "300 runs". */
export const plural = (n: number, what: string) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
