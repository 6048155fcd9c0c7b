// Compares beside the page, so that the page stays usable while large states are compared.

import { Comparison, type Part } from "./comparison";

/** A request to the worker: first the two, then details of their comparison. Answers have the id of their request. */
export type Request =
  | { id: number; ask: "compare"; a: Part; b: Part }
  | { id: number; ask: "places"; n: number }
  | { id: number; ask: "equalAt"; place: number; n: number }
  | { id: number; ask: "changes"; name: string; n: number };

export type Answer = { id: number; value: unknown } | { id: number; error: string };

let comparison: Comparison | null = null;

self.onmessage = ({ data }: MessageEvent<Request>) => {
  let answer: Answer;
  try {
    answer = { id: data.id, value: answerTo(data) };
  } catch (error) {
    answer = { id: data.id, error: error instanceof Error ? error.message : String(error) };
  }
  self.postMessage(answer);
};

function answerTo(r: Request): unknown {
  if (r.ask === "compare") {
    comparison = null; // the one before is not needed beside the next
    comparison = new Comparison(r.a, r.b);
    return comparison.overview;
  }
  if (!comparison) throw new Error("nothing is compared yet");
  if (r.ask === "places") return comparison.places(r.n);
  if (r.ask === "equalAt") return comparison.equalAt(r.place, r.n);
  return comparison.changes(r.name, r.n);
}
