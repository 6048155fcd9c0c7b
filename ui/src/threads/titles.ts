import type { Thread } from "../api/types";

/** What is wanted of each thread. */
interface Wanted {
  select: string[];
  extract?: Record<string, string>;
}

const select = ["thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "status", "interrupts"];

/** The words that a list shows of a thread, without its values. To extract them, the server reads the whole state. */
const words = { title: "values.title", first: "values.messages[0].content" };

/** How many threads are remembered. */
const most = 5_000;

/**
 * The words of threads that lists have shown. Lists are read again whenever a thread changes, so they extract only from threads whose state is another one than
 * before.
 */
export class Titles {
  private readonly extract: Record<string, string>;

  /** By thread, that read last at the end. */
  private known = new Map<string, { state: string; extracted: Thread["extracted"] }>();

  /** more is extracted besides the title and what was said first. */
  constructor(more: Record<string, string> = {}) {
    this.extract = { ...words, ...more };
  }

  /** Reads a list by calling list, and the words of those of its threads that are not known by calling read. */
  async add(list: (wanted: Wanted) => Promise<Thread[]>, read: (ids: string[], wanted: Wanted) => Promise<Thread[]>): Promise<Thread[]> {
    if (this.known.size === 0) {
      const threads = await list({ select, extract: this.extract });
      this.keep(threads);
      return threads;
    }
    const threads = await list({ select });
    const unknown = threads.filter((t) => !this.knows(t));
    if (unknown.length > 0) this.keep(await read(unknown.map((t) => t.thread_id), { select: ["thread_id", "state_updated_at"], extract: this.extract }));
    const shown = threads.map((t) => ({ ...t, extracted: this.known.get(t.thread_id)?.extracted }));
    this.forget();
    return shown;
  }

  /** A run saves its first words before it ends, and the time of the state is that of its end. */
  private knows(t: Thread): boolean {
    const known = this.known.get(t.thread_id);
    return known?.state === stateOf(t) && (t.status !== "busy" || Boolean(known.extracted?.title || known.extracted?.first));
  }

  private keep(threads: readonly Thread[]) {
    for (const t of threads) {
      this.known.delete(t.thread_id); // what is set again becomes the newest
      this.known.set(t.thread_id, { state: stateOf(t), extracted: t.extracted });
    }
  }

  private forget() {
    for (const [id] of this.known) {
      if (this.known.size <= most) break;
      this.known.delete(id);
    }
  }
}

const stateOf = (t: Thread) => t.state_updated_at ?? t.updated_at;
