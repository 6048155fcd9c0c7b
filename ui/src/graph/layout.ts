import { Graph, layout } from "@dagrejs/dagre";
import type { Drawing } from "../api/types";

export interface Box {
  id: string;
  label: string;
  x: number; // of the center, as y
  y: number;
  width: number;
  height: number;
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
  lines: Line[];
}

/** Places nodes in rows from the beginning to the end. */
export function place(d: Drawing): Layout {
  const g = new Graph({ multigraph: true });
  g.setGraph({ rankdir: "TB", nodesep: 32, ranksep: 44, marginx: 12, marginy: 12 });
  g.setDefaultEdgeLabel(() => ({}));
  for (const n of d.nodes) {
    const label = labelOf(n);
    g.setNode(String(n.id), { label, width: Math.min(460, 40 + label.length * 7.8), height: 42 });
  }
  d.edges.forEach((e, i) => g.setEdge(String(e.source), String(e.target), { label: e.data ?? "", conditional: Boolean(e.conditional) }, String(i)));
  layout(g);
  const { width = 0, height = 0 } = g.graph() as { width?: number; height?: number };
  return {
    width,
    height,
    boxes: g.nodes().map((id) => {
      const n = g.node(id) as { label: string; x: number; y: number; width: number; height: number };
      return { id, ...n, end: id === "__start__" || id === "__end__" };
    }),
    lines: g.edges().map((e) => {
      const line = g.edge(e) as unknown as { label: string; conditional: boolean; points: { x: number; y: number }[] };
      return { from: e.v, to: e.w, label: line.label, conditional: line.conditional, points: line.points };
    }),
  };
}

function labelOf(n: Drawing["nodes"][number]): string {
  if (n.id === "__start__") return "start";
  if (n.id === "__end__") return "end";
  return (typeof n.data === "object" ? n.data.name : undefined) ?? String(n.id);
}
