import { Graph, layout } from "@dagrejs/dagre";
import type { Drawing } from "../api/types";
import { around, subgraphsOf } from "./fold";

interface Rect {
  id: string;
  x: number; // of the center, as y
  y: number;
  width: number;
  height: number;
}

export interface Box extends Rect {
  label: string;
  end: boolean; // the beginning or the end
}

export interface Line {
  from: string;
  to: string;
  label: string;
  conditional: boolean;
  points: { x: number; y: number }[];
}

export interface Layout {
  width: number;
  height: number;
  boxes: Box[];
  frames: Rect[]; // of subgraphs, outer ones first
  lines: Line[];
}

/** Places nodes in rows from the beginning to the end, those of a subgraph together. */
export function place(d: Drawing): Layout {
  const subgraphs = subgraphsOf(d);
  const g = new Graph({ multigraph: true, compound: subgraphs.length > 0 });
  g.setGraph({ rankdir: "TB", nodesep: 32, ranksep: 44, marginx: 12, marginy: 12 });
  g.setDefaultEdgeLabel(() => ({}));
  for (const s of subgraphs) {
    g.setNode(s, {});
    if (around(s)) g.setParent(s, around(s));
  }
  for (const n of d.nodes) {
    const label = labelOf(n);
    g.setNode(String(n.id), { label, width: Math.min(460, 40 + label.length * 7.8), height: 42 });
    if (around(String(n.id))) g.setParent(String(n.id), around(String(n.id)));
  }
  d.edges.forEach((e, i) => g.setEdge(String(e.source), String(e.target), { label: e.data ?? "", conditional: Boolean(e.conditional) }, String(i)));
  layout(g);
  const { width = 0, height = 0 } = g.graph() as { width?: number; height?: number };
  return {
    width,
    height,
    boxes: d.nodes.map((n) => {
      const id = String(n.id);
      return { ...(g.node(id) as { label: string } & Rect), id, end: id === "__start__" || id === "__end__" };
    }),
    frames: subgraphs.map((id) => ({ id, ...(g.node(id) as Omit<Rect, "id">) })),
    lines: g.edges().map((e) => {
      const line = g.edge(e) as unknown as { label: string; conditional: boolean; points: { x: number; y: number }[] };
      return { from: e.v, to: e.w, label: line.label, conditional: line.conditional, points: line.points };
    }),
  };
}

function labelOf(n: Drawing["nodes"][number]): string {
  if (n.id === "__start__") return "start";
  if (n.id === "__end__") return "end";
  const name = typeof n.data === "object" ? n.data.name : undefined;
  return name === undefined || name === n.id ? String(n.id).split(":").at(-1)! : name; // the frame has the rest
}
