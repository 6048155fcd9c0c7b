// What is tried side by side: what both sides get, and the threads that get it.
import type { Json } from "../api/types";

/** What both sides get. */
export interface Turn {
  n: number;
  text?: string;
  input?: Json;
}

/** Two threads that get the same, and the assistants that answer. */
export interface Pair {
  assistants: [string, string];
  threads: [string, string];
}

export interface Trial {
  choice: string; // of what answers
  pair: Pair | null; // null: nothing was sent yet
  turns: Turn[];
  busy: readonly [boolean, boolean];
}

export type Action = { choice: string } & ({ type: "chosen" } | { type: "sent"; pair: Pair; turn: Omit<Turn, "n"> } | { type: "busy"; side: 0 | 1; now: boolean });

export const untried = (choice: string): Trial => ({ choice, pair: null, turns: [], busy: [false, false] });

/** What was begun for another choice, and comes later, is left out. */
export function reduce(trial: Trial, action: Action): Trial {
  if (action.type === "chosen") return action.choice === trial.choice ? trial : untried(action.choice);
  if (action.choice !== trial.choice) return trial;
  if (action.type === "sent") return { ...trial, pair: action.pair, turns: [...trial.turns, { ...action.turn, n: trial.turns.length + 1 }] };
  const [first, second] = trial.busy;
  return { ...trial, busy: action.side === 0 ? [action.now, second] : [first, action.now] };
}
