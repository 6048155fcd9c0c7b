import { expect, it } from "vitest";
import type { Checkpoint } from "../conversation/branches";
import { placesOf } from "./lanes";

/** Checkpoints, newest first, each as "id<parent". */
const list = (text: string) =>
  text.split(" ").map((pair) => {
    const [checkpoint_id, parent] = pair.split("<");
    return { checkpoint_id, parent_checkpoint_id: parent || null } as Checkpoint;
  });
const shown = (text: string) => [...placesOf(list(text))].map(([id, { lane, fork }]) => `${id}${lane}${fork ? "f" : ""}`).join(" ");

it.each([
  ["c<b b<a a<", "c0 b0 a0"],
  ["e<a c<b b<a a<", "e0 c1 b1 a0f"], // a branch that was begun last
  ["e<d d<b c<b b<a a<", "e0 d0 c1 b0f a0"],
  ["g<a f<b c<b b<a a<", "g0 f1 c2 b1f a0f"], // branches of a branch
  ["c<x b<a a<", "c0 b1 a1"], // whose parent is not listed
])("%s", (tree, want) => expect(shown(tree)).toBe(want));
