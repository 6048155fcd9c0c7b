// Subgraphs of a drawing, which are opened and closed in place. The IDs of their nodes have the nodes around them, such as "parent:child".
import type { Drawing } from "../api/types";

/** Up to so many nodes all subgraphs are open at first. */
const few = 40;

/** The subgraph that a node is in; "" for the graph itself. */
export const around = (node: string) => node.slice(0, Math.max(0, node.lastIndexOf(":")));

/** The subgraphs of a drawing, outer ones first. */
export function subgraphsOf({ nodes }: Drawing): string[] {
  const found = new Set<string>();
  for (const { id } of nodes) for (let at = around(String(id)); at !== ""; at = around(at)) found.add(at);
  return [...found].sort((a, b) => depth(a) - depth(b) || a.localeCompare(b));
}

const depth = (id: string) => id.split(":").length;

/** Which subgraphs are closed, when those in toggled are not as they are at first. */
export function closedOf(d: Drawing, toggled: ReadonlySet<string>): Set<string> {
  const open = d.nodes.length <= few;
  return new Set(subgraphsOf(d).filter((s) => toggled.has(s) === open));
}

/** The subgraphs that an address says are not as they are at first. Each is a parameter of its own: names have spaces too. */
export const toggledIn = (params: URLSearchParams) => new Set(params.getAll("fold"));

/** Opens or closes a subgraph in an address. */
export function toggle(params: URLSearchParams, subgraph: string): URLSearchParams {
  const toggled = toggledIn(params);
  toggled.delete(subgraph) || toggled.add(subgraph);
  params.delete("fold");
  for (const s of toggled) params.append("fold", s);
  return params;
}

/** A drawing in which closed subgraphs are nodes. */
export function fold(d: Drawing, closed: ReadonlySet<string>): Drawing {
  const drawn = (id: string): string => {
    let at = id;
    for (let outer = around(id); outer !== ""; outer = around(outer)) if (closed.has(outer)) at = outer;
    return at;
  };
  const nodes = new Map<string, Drawing["nodes"][number]>();
  for (const n of d.nodes) {
    const id = drawn(String(n.id));
    nodes.set(id, id === String(n.id) ? n : { id, data: id.split(":").at(-1)! });
  }
  const edges = new Map<string, Drawing["edges"][number]>();
  for (const e of d.edges) {
    const [source, target] = [drawn(String(e.source)), drawn(String(e.target))];
    const moved = source !== String(e.source) || target !== String(e.target);
    if (moved && source === target) continue; // inside of a closed one
    const key = [source, target, ...(moved ? [] : [e.data ?? "", edges.size])].join("\0"); // names have spaces too
    const before = edges.get(key);
    edges.set(key, { ...e, source, target, conditional: Boolean(e.conditional) && (before?.conditional ?? true) });
  }
  return { ...d, nodes: [...nodes.values()], edges: [...edges.values()] };
}
