import { expect, test } from "vitest";
import type { Json } from "../api/types";
import { command, reviewOf } from "./review";

test("LangChain's review", () => {
  const review = reviewOf({
    action_requests: [{ name: "send", args: { to: "ann" }, description: "d" }, { name: "wait", args: {} }],
    review_configs: [{ action_name: "send", allowed_decisions: ["approve", "reject", "unknown"] }],
  })!;
  expect(review.actions).toEqual([
    { name: "send", args: { to: "ann" }, description: "d", allows: ["approve", "reject"] },
    { name: "wait", args: {}, description: undefined, allows: ["approve", "edit", "reject"] },
  ]);
  expect(review.resume([{ decision: "reject", text: "no" }, { decision: "edit", args: { s: 1 } }])).toEqual({
    decisions: [{ type: "reject", message: "no" }, { type: "edit", edited_action: { name: "wait", args: { s: 1 } } }],
  });
});

test("the agent inbox", () => {
  const review = reviewOf([{ action_request: { action: "send", args: { to: "ann" } }, config: { allow_accept: true, allow_edit: true, allow_respond: true, allow_ignore: true } }])!;
  expect(review.actions[0]!.allows).toEqual(["approve", "edit", "respond", "reject"]);
  expect(review.resume([{ decision: "approve" }])).toEqual([{ type: "accept", args: null }]);
  expect(review.resume([{ decision: "edit", args: { to: "bob" } }])).toEqual([{ type: "edit", args: { action: "send", args: { to: "bob" } } }]);
  expect(review.resume([{ decision: "respond", text: "later" }])).toEqual([{ type: "response", args: "later" }]);
  expect(review.resume([{ decision: "reject" }])).toEqual([{ type: "ignore", args: null }]);
});

test("anything else has no review", () => {
  for (const value of [null, 1, "x", [], {}, [{}], { action_requests: 1 }, { action_request: 1 }] as Json[]) expect(reviewOf(value)).toBeNull();
});

test("several interrupts are answered by their IDs", () => {
  expect(command([{ id: "a", value: 1 }])).toEqual({ resume: 1 });
  expect(command([{ id: "a", value: 1 }, { id: "b", value: null }])).toEqual({ resume: { a: 1, b: null } });
});
