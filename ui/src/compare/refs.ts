// What can be compared, as it stands in an address: run:THREAD/RUN, checkpoint:THREAD/CHECKPOINT or thread:THREAD.

export interface Ref {
  kind: "run" | "checkpoint" | "thread";
  thread: string;
  id: string; // of the run, checkpoint or thread
}

export const runRef = (thread: string, run: string) => `run:${thread}/${run}`;
export const checkpointRef = (thread: string, checkpoint: string) => `checkpoint:${thread}/${checkpoint}`;
export const threadRef = (thread: string) => `thread:${thread}`;

/** Reads a reference; null when it is none. */
export function parseRef(text: string | null): Ref | null {
  const found = /^(?:(run|checkpoint):([\w-]+)\/([\w-]+)|thread:([\w-]+))$/.exec(text?.trim() ?? "");
  if (!found) return null;
  const [, kind, thread, id, whole] = found;
  return whole ? { kind: "thread", thread: whole, id: whole } : { kind: kind as "run" | "checkpoint", thread: thread!, id: id! };
}

/** What people call it: its kind and the end of its ID. */
export function nameOf(text: string): string {
  const ref = parseRef(text);
  return ref ? `${ref.kind} …${ref.id.slice(-8)}` : text;
}

/** The address of a comparison. Without b, its page asks for it. */
export function pathOf(a: string, b?: string): string {
  const query = new URLSearchParams({ a });
  if (b) query.set("b", b);
  return `/compare?${query}`;
}

/** Where a thing has its own page. */
export function pageOf({ kind, thread, id }: Ref): string {
  if (kind === "run") return `/r/${id}`;
  return kind === "thread" ? `/t/${thread}` : `/t/${thread}?panel=state&checkpoint=${id}`;
}
