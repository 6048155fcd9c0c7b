// Where a conversation divides: checkpoints are a tree, and the transcript shows one path through it.

/** A checkpoint without its values, as GET /understudy/threads/{id}/tree lists them. */
export interface Checkpoint {
  checkpoint_id: string;
  parent_checkpoint_id: string | null;
  created_at: string;
  step: number;
  source: string;
  run_id: string | null;
}

/** The branches that begin at a message: the newest checkpoint of each, oldest branch first, and which of them is shown. */
export interface Branch {
  at: number;
  all: string[];
}

/** Whether a checkpoint has what a turn begins with: its input, or the beginning of another attempt. */
export const beginsTurn = (c: Checkpoint) => c.source === "input" || c.source === "fork";

export class Tree {
  private readonly byID = new Map<string, Checkpoint>();
  private readonly newest = new Map<string, string>(); // of the part of the tree that begins at a checkpoint
  private readonly children = new Map<string, string[]>();

  constructor(checkpoints: readonly Checkpoint[]) {
    const oldestFirst = [...checkpoints].sort((a, b) => (a.checkpoint_id < b.checkpoint_id ? -1 : 1)); // their IDs ascend with time
    for (const c of oldestFirst) {
      this.byID.set(c.checkpoint_id, c);
      if (c.parent_checkpoint_id) (this.children.get(c.parent_checkpoint_id) ?? this.children.set(c.parent_checkpoint_id, []).get(c.parent_checkpoint_id)!).push(c.checkpoint_id);
    }
    for (const c of oldestFirst.reverse()) {
      const own = this.newest.get(c.checkpoint_id) ?? c.checkpoint_id;
      this.newest.set(c.checkpoint_id, own);
      const parent = c.parent_checkpoint_id;
      if (parent && own > (this.newest.get(parent) ?? "")) this.newest.set(parent, own);
    }
  }

  /** Where the conversation stood before what a checkpoint added; undefined: nowhere, it was the first. Inputs, and beginnings of another attempt, are saved in checkpoints of their own. */
  before(checkpoint: string): string | undefined {
    let at = this.byID.get(checkpoint)?.parent_checkpoint_id ?? undefined;
    for (let c = at && this.byID.get(at); c && beginsTurn(c); c = this.byID.get(at)) {
      const up = c.parent_checkpoint_id;
      if (!up || !this.byID.has(up)) break;
      at = up;
    }
    return at;
  }

  /** The branches of which the one with this checkpoint is one. */
  branchesAt(checkpoint: string): Branch {
    const fork = this.before(checkpoint);
    const starts = fork ? (this.children.get(fork) ?? []) : [];
    const at = starts.findIndex((start) => this.isBelow(checkpoint, start));
    return { at: Math.max(at, 0), all: starts.map((start) => this.newest.get(start)!) };
  }

  get(checkpoint: string) {
    return this.byID.get(checkpoint);
  }

  get size() {
    return this.byID.size;
  }

  private isBelow(checkpoint: string, ancestor: string): boolean {
    for (let at: string | null | undefined = checkpoint; at && at >= ancestor; at = this.byID.get(at)?.parent_checkpoint_id) if (at === ancestor) return true;
    return false;
  }
}
