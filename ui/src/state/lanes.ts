import type { Checkpoint } from "../conversation/branches";

/** Where a checkpoint stands in the tree of its thread. */
export interface Place {
  lane: number; // 0 is the path of the newest checkpoint; others branch off it, or off each other
  fork: boolean; // several checkpoints continue it
}

/** The places of checkpoints, which are listed newest first: a checkpoint is on the path of the newest one that continues it. Linear in their number. */
export function placesOf(checkpoints: readonly Checkpoint[]): ReadonlyMap<string, Place> {
  const places = new Map<string, Place>();
  const claimed = new Map<string, { lane: number; times: number }>(); // by those that continue a checkpoint
  let lanes = 0;
  for (const c of checkpoints) {
    const by = claimed.get(c.checkpoint_id);
    const lane = by?.lane ?? lanes++;
    places.set(c.checkpoint_id, { lane, fork: (by?.times ?? 0) > 1 });
    if (c.parent_checkpoint_id === null) continue;
    const parent = claimed.get(c.parent_checkpoint_id);
    claimed.set(c.parent_checkpoint_id, { lane: Math.min(parent?.lane ?? lane, lane), times: (parent?.times ?? 0) + 1 });
  }
  return places;
}
