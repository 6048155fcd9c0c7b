// How two JSON values differ. What is equal is named by its place only, so a diff is never much larger than both values.

import type { Json, JsonObject } from "../api/types";
import { align, type Pair } from "./align";

/** same: nothing differs. value: one stands in place of the other. object: by member, without the equal ones. list: what each element of it comes from. */
export type Diff = { kind: "same" } | { kind: "value"; before: Json; after: Json } | { kind: "object"; members: Map<string, Member> } | { kind: "list"; items: Item[] };

/** What became of a member of an object. */
export type Member = { kind: "added"; after: Json } | { kind: "removed"; before: Json } | Exclude<Diff, { kind: "same" }>;

/** A stretch of equal elements, an element that only one list has, or one that differs. */
export type Item = { kind: "equal"; count: number } | { kind: "added"; after: Json } | { kind: "removed"; before: Json } | { kind: "changed"; diff: Diff };

/** Values that are nested deeper than this are compared as a whole. */
const deepest = 500;

const same: Diff = { kind: "same" };

/** The diff that makes b of a. The work is near linear in the sizes of both. */
export function diff(a: Json, b: Json): Diff {
  const ids = new Identities();
  ids.add(a);
  ids.add(b);
  return between(a, b, ids, 0);
}

function between(a: Json, b: Json, ids: Identities, depth: number): Diff {
  if (ids.of(a) === ids.of(b)) return same;
  if (depth < deepest && isContainer(a) && isContainer(b)) {
    if (Array.isArray(a) && Array.isArray(b)) return { kind: "list", items: lists(a, b, ids, depth) };
    if (!Array.isArray(a) && !Array.isArray(b)) return { kind: "object", members: objects(a, b, ids, depth) };
  }
  return { kind: "value", before: a, after: b };
}

function objects(a: JsonObject, b: JsonObject, ids: Identities, depth: number): Map<string, Member> {
  const members = new Map<string, Member>();
  for (const [name, before] of Object.entries(a)) {
    const d: Member | { kind: "same" } = Object.hasOwn(b, name) ? between(before, b[name]!, ids, depth + 1) : { kind: "removed", before };
    if (d.kind !== "same") members.set(name, d);
  }
  for (const [name, after] of Object.entries(b)) if (!Object.hasOwn(a, name)) members.set(name, { kind: "added", after });
  return members;
}

function lists(a: Json[], b: Json[], ids: Identities, depth: number): Item[] {
  const items: Item[] = [];
  let removed: Json[] = [];
  let added: Json[] = [];
  /** What is left between two equal stretches: elements that are alike are one that changed. */
  const settle = () => {
    if (removed.length === 0 && added.length === 0) return;
    const [x, y] = [removed.map(nameOf), added.map(nameOf)];
    // Elements meet by their ids. Where no id is in both, as in two runs on one input, as many stand for as many.
    const known = new Set(y);
    const byName = x.some((n) => n !== null && (known.has(n) || x.length !== y.length));
    const pairs = byName ? align(x.map((n, i) => n ?? i), y.map((n, i) => n ?? -1 - i)) : Array.from({ length: Math.max(x.length, y.length) }, (_, i): Pair => [i < x.length ? i : -1, i < y.length ? i : -1]);
    for (const [x, y] of pairs) {
      if (x < 0) items.push({ kind: "added", after: added[y]! });
      else if (y < 0) items.push({ kind: "removed", before: removed[x]! });
      else items.push({ kind: "changed", diff: between(removed[x]!, added[y]!, ids, depth + 1) });
    }
    removed = [];
    added = [];
  };
  for (const [x, y] of align(a.map((v) => ids.of(v)), b.map((v) => ids.of(v)))) {
    if (x < 0) added.push(b[y]!);
    else if (y < 0) removed.push(a[x]!);
    else {
      settle();
      const last = items.at(-1);
      if (last?.kind === "equal") last.count++;
      else items.push({ kind: "equal", count: 1 });
    }
  }
  settle();
  return items;
}

/** What an element of a list is known by, also after it changed. */
function nameOf(v: Json): string | null {
  const id = isContainer(v) && !Array.isArray(v) && Object.hasOwn(v, "id") ? v.id : null;
  return typeof id === "string" ? id : null;
}

const isContainer = (v: Json): v is Json[] | JsonObject => v !== null && typeof v === "object";

/** What diff made of a value and another: applied to the first, it is the second. */
export function apply(d: Diff, a: Json): Json {
  switch (d.kind) {
    case "same":
      return a;
    case "value":
      return d.after;
    case "object": {
      const out = new Map(Object.entries(a as JsonObject));
      for (const [name, m] of d.members) {
        if (m.kind === "removed") out.delete(name);
        else out.set(name, m.kind === "added" ? m.after : apply(m, out.get(name)!));
      }
      return Object.fromEntries(out);
    }
    case "list": {
      const out: Json[] = [];
      let at = 0;
      for (const item of d.items) {
        if (item.kind === "equal") for (let i = 0; i < item.count; i++) out.push((a as Json[])[at++]!);
        else if (item.kind === "added") out.push(item.after);
        else if (item.kind === "removed") at++;
        else out.push(apply(item.diff, (a as Json[])[at++]!));
      }
      return out;
    }
  }
}

/** Gives equal values equal numbers, so that comparing two of them is one step, however large they are. */
class Identities {
  private readonly known = new Map<string, number>();
  private readonly ofContainer = new Map<object, number>();

  of(v: Json): number {
    return isContainer(v) ? this.ofContainer.get(v)! : this.number(v === null ? "null" : `${(typeof v)[0]}${v}`);
  }

  /** Numbers a value and all that is in it, the innermost first. It does not recurse: JSON may be nested deeper than the stack of a browser. */
  add(root: Json) {
    const open: { value: Json; seen: boolean }[] = [{ value: root, seen: false }];
    for (let top = open.pop(); top; top = open.pop()) {
      const { value, seen } = top;
      if (!isContainer(value) || this.ofContainer.has(value)) continue;
      if (!seen) {
        open.push({ value, seen: true });
        for (const v of Object.values(value)) if (isContainer(v)) open.push({ value: v, seen: false });
      } else if (Array.isArray(value)) this.ofContainer.set(value, this.number(`[${value.map((v) => this.of(v)).join()}`));
      else {
        const names = Object.keys(value).sort();
        this.ofContainer.set(value, this.number(`{${names.map((n) => `${JSON.stringify(n)}${this.of(value[n]!)}`).join()}`));
      }
    }
  }

  private number(text: string): number {
    const found = this.known.get(text);
    if (found !== undefined) return found;
    this.known.set(text, this.known.size);
    return this.known.size - 1;
  }
}

/** A difference in one place. before or after is undefined where only the other value has it. */
export interface Change {
  path: string;
  before?: Json;
  after?: Json;
}

/** The differences one by one, in the order of the values. */
export function* changesOf(d: Diff, path = ""): Generator<Change> {
  if (d.kind === "value") yield { path, before: d.before, after: d.after };
  const at = (name: string | number) => (path === "" ? String(name) : `${path}.${name}`);
  if (d.kind === "object") for (const [name, m] of d.members) yield* m.kind === "added" || m.kind === "removed" ? [{ path: at(name), ...sides(m) }] : changesOf(m, at(name));
  if (d.kind === "list") {
    let [x, y] = [0, 0];
    for (const item of d.items) {
      if (item.kind === "equal") [x, y] = [x + item.count, y + item.count];
      else if (item.kind === "added") yield { path: at(y++), ...sides(item) };
      else if (item.kind === "removed") yield { path: at(x++), ...sides(item) };
      else {
        x++;
        yield* changesOf(item.diff, at(y++));
      }
    }
  }
}

const sides = (m: { kind: "added"; after: Json } | { kind: "removed"; before: Json }) => (m.kind === "added" ? { after: m.after } : { before: m.before });
