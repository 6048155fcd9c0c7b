import { expect, it } from "vitest";
import type { Drawing } from "../api/types";
import { closedOf, fold, subgraphsOf, toggle, toggledIn } from "./fold";
import { place } from "./layout";

const drawing = (nodes: string[], edges: [string, string][]) =>
  ({ nodes: nodes.map((id) => ({ id, data: { name: id.split(":").at(-1)! } })), edges: edges.map(([source, target]) => ({ source, target })) }) as unknown as Drawing;

const nested = drawing(
  ["__start__", "a", "b:c", "b:d:e", "b:d:f", "__end__"],
  [["__start__", "a"], ["a", "b:c"], ["b:c", "b:d:e"], ["b:d:e", "b:d:f"], ["b:d:f", "b:c"], ["b:d:f", "__end__"]],
);

const shape = (d: Drawing) => [d.nodes.map((n) => n.id), d.edges.map((e) => `${e.source}>${e.target}`)];

it("knows the subgraphs of a drawing, outer ones first", () => expect(subgraphsOf(nested)).toEqual(["b", "b:d"]));

it("draws a closed subgraph as a node, with the edges from and to what is around it", () => {
  expect(shape(fold(nested, new Set(["b"])))).toEqual([["__start__", "a", "b", "__end__"], ["__start__>a", "a>b", "b>__end__"]]);
  expect(shape(fold(nested, new Set(["b:d"])))).toEqual([["__start__", "a", "b:c", "b:d", "__end__"], ["__start__>a", "a>b:c", "b:c>b:d", "b:d>b:c", "b:d>__end__"]]);
  expect(fold(nested, new Set())).toEqual({ ...nested, edges: nested.edges.map((e) => ({ ...e, conditional: false })) });
});

it("opens subgraphs of small drawings at first, and none of large ones", () => {
  expect(closedOf(nested, new Set())).toEqual(new Set());
  expect(closedOf(nested, new Set(["b"]))).toEqual(new Set(["b"]));
  const large = drawing(Array.from({ length: 50 }, (_, i) => `s${i % 5}:n${i}`), []);
  expect(closedOf(large, new Set(["s1"]))).toEqual(new Set(["s0", "s2", "s3", "s4"]));
});

it("frames what an open subgraph has, and an inner one inside of it", () => {
  const { frames, boxes } = place(nested);
  const inside = (o: { x: number; y: number; width: number; height: number }, i: typeof o) => Math.abs(o.x - i.x) <= (o.width - i.width) / 2 && Math.abs(o.y - i.y) <= (o.height - i.height) / 2;
  const [outer, inner] = frames as [(typeof frames)[0], (typeof frames)[0]];
  expect(frames.map((f) => f.id)).toEqual(["b", "b:d"]);
  expect(inside(outer, inner)).toBe(true);
  for (const box of boxes) expect([box.id, inside(outer, box), inside(inner, box)]).toEqual([box.id, box.id.startsWith("b:"), box.id.startsWith("b:d:")]);
});

it("has subgraphs whose names have spaces in the address, each for itself", () => {
  const team = drawing(["Research Team:a", "Team:b", "c"], []);
  const params = new URLSearchParams("tab=graph");
  for (const subgraph of ["Research Team", "Team", "Team"]) toggle(params, subgraph);
  const read = new URLSearchParams(params.toString());
  expect([read.get("tab"), [...toggledIn(read)]]).toEqual(["graph", ["Research Team"]]);
  expect(closedOf(team, toggledIn(read))).toEqual(new Set(["Research Team"]));
  expect(toggle(read, "Research Team").toString()).toBe("tab=graph");
});

it("keeps edges apart whose names are equal when joined by spaces", () => {
  const d = drawing(["a:x", "a b:x", "b c", "c"], [["a b:x", "c"], ["a:x", "b c"], ["a b:x", "c"]]);
  expect(shape(fold(d, new Set(["a", "a b"])))).toEqual([["a", "a b", "b c", "c"], ["a b>c", "a>b c"]]);
});
