// Messages side by side. Two runs give the same message different IDs, so messages are compared by what they say.

import type { Message } from "../api/types";
import { kindOf } from "../conversation/message";
import { align } from "./align";

/** A stretch of messages that both sides have, or a place where they differ: one is undefined where only the other has a message. */
export type Stretch = { kind: "equal"; messages: Message[] } | { kind: "differ"; a?: Message; b?: Message };

export function beside(a: readonly Message[], b: readonly Message[]): Stretch[] {
  const out: Stretch[] = [];
  let [onlyA, onlyB]: [Message[], Message[]] = [[], []];
  const settle = () => {
    for (const [x, y] of align(onlyA.map(kindOf), onlyB.map(kindOf))) out.push({ kind: "differ", a: onlyA[x], b: onlyB[y] });
    [onlyA, onlyB] = [[], []];
  };
  for (const [x, y] of align(a.map(said), b.map(said))) {
    if (x < 0) onlyB.push(b[y]!);
    else if (y < 0) onlyA.push(a[x]!);
    else {
      settle();
      const last = out.at(-1);
      last?.kind === "equal" ? last.messages.push(a[x]!) : out.push({ kind: "equal", messages: [a[x]!] });
    }
  }
  settle();
  return out;
}

/** What a message says and calls, without its IDs and usage. */
const said = (m: Message) => JSON.stringify([kindOf(m), m.name ?? null, m.content, (m.tool_calls ?? []).map((c) => [c.name, c.args]), m.status === "error"]);

/** Words in the order of a text; own ones are not in the other text. */
export interface Words {
  text: string;
  own: boolean;
}

/** Of how many characters the words are compared. Longer texts are compared as a whole. */
const mostText = 50_000;

/** Which words of two texts differ. */
export function words(a: string, b: string): [Words[], Words[]] {
  if (a.length + b.length > mostText) return [[{ text: a, own: true }], [{ text: b, own: true }]];
  const [x, y] = [split(a), split(b)];
  const sides: [Words[], Words[]] = [[], []];
  const add = (side: Words[], text: string, own: boolean) => {
    const last = side.at(-1);
    last?.own === own ? (last.text += text) : side.push({ text, own });
  };
  for (const [i, j] of align(x, y)) {
    const equal = i >= 0 && j >= 0;
    if (i >= 0) add(sides[0], x[i]!, !equal);
    if (j >= 0) add(sides[1], y[j]!, !equal);
  }
  return sides;
}

/** Words, what stands between them, and each sign of scripts that put no spaces between words. */
const split = (text: string) => text.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{N}\p{M}_]+|\s+|./gsu) ?? [];
