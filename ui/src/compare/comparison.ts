// What differs between two states and two lists of messages, in parts that are small enough to hand over: the comparison itself stays where it was made.

import type { Json, JsonObject, Message } from "../api/types";
import { changesOf, diff, type Change, type Diff, type Member } from "./diff";
import { beside, type Stretch } from "./messages";

/** One of the two: its state as the server sent it, and its messages where they are not those of its state. */
export interface Part {
  state: ArrayBuffer | null;
  messages: Message[] | null;
}

/** A place where the messages differ, or how many are equal. */
export type Place = { kind: "equal"; count: number } | Extract<Stretch, { kind: "differ" }>;

/** What is known of a comparison before its details are asked for. */
export interface Overview {
  counts: [number, number]; // of messages
  tokens: [Tokens, Tokens];
  places: number;
  allEqual: boolean;
  states: [boolean, boolean]; // whether each has one
  changed: { name: string; kind: Member["kind"] }[];
  equal: string[]; // channels
}

export interface Tokens {
  input: number;
  output: number;
}

/** A comparison of two. Its methods return copies of what they are asked for, and no more of it. */
export class Comparison {
  private readonly stretches: Stretch[];
  private readonly channels = new Map<string, Diff>();
  readonly overview: Overview;

  constructor(a: Part, b: Part) {
    const [x, y] = [valuesOf(a.state), valuesOf(b.state)];
    const [left, right] = [a.messages ?? messagesOf(x), b.messages ?? messagesOf(y)];
    this.stretches = beside(left, right);
    const changed: Overview["changed"] = [];
    const equal: string[] = [];
    if (x && y) {
      const d = diff(x, y);
      if (d.kind === "object") {
        for (const [name, m] of d.members) {
          changed.push({ name, kind: m.kind });
          // What only one has is a change of the whole.
          this.channels.set(name, m.kind === "added" || m.kind === "removed" ? { kind: "object", members: new Map([[name, m]]) } : m);
        }
      }
      for (const name of Object.keys(x)) if (!this.channels.has(name)) equal.push(name);
    }
    this.overview = {
      counts: [left.length, right.length],
      tokens: [tokensOf(left), tokensOf(right)],
      places: this.stretches.length,
      allEqual: this.stretches.every((s) => s.kind === "equal"),
      states: [x !== null, y !== null],
      changed,
      equal,
    };
  }

  /** The first places of the messages. */
  places(n: number): Place[] {
    return this.stretches.slice(0, n).map((s) => (s.kind === "equal" ? { kind: "equal", count: s.messages.length } : s));
  }

  /** The first messages of a place where they are equal. */
  equalAt(place: number, n: number): Message[] {
    const s = this.stretches[place];
    return s?.kind === "equal" ? s.messages.slice(0, n) : [];
  }

  /** The first changes of a channel, and whether there are more. */
  changes(name: string, n: number): Changes {
    const d = this.channels.get(name);
    return d ? firstChanges(d, n) : { changes: [], more: false };
  }
}

export interface Changes {
  changes: Change[];
  more: boolean;
}

/** The first changes of a diff, and whether there are more. */
export function firstChanges(d: Diff, n: number): Changes {
  const changes: Change[] = [];
  for (const c of changesOf(d)) {
    if (changes.length === n) return { changes, more: true };
    changes.push(c);
  }
  return { changes, more: false };
}

/** The values of a state by channel; null when there is none. */
function valuesOf(state: ArrayBuffer | null): JsonObject | null {
  return state ? asObject((JSON.parse(new TextDecoder().decode(state)) as { values?: Json }).values) : null;
}

const asObject = (values: Json | undefined): JsonObject | null => (values !== null && typeof values === "object" && !Array.isArray(values) ? values : null);

/** The messages in a state; none when it keeps something else by that name. */
function messagesOf(values: JsonObject | null): Message[] {
  const list = values?.messages;
  const good = Array.isArray(list) && list.every((m) => typeof asObject(m)?.type === "string" && (typeof asObject(m)!.content === "string" || Array.isArray(asObject(m)!.content)));
  return good ? (list as unknown as Message[]) : [];
}

function tokensOf(messages: readonly Message[]): Tokens {
  const sum: Tokens = { input: 0, output: 0 };
  for (const m of messages) {
    sum.input += m.usage_metadata?.input_tokens ?? 0;
    sum.output += m.usage_metadata?.output_tokens ?? 0;
  }
  return sum;
}
