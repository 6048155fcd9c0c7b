// Nodes by the IDs that they have in the drawing with all subgraphs, such as "parent:child".
import type { State } from "../api/types";

/** The ID of a node. A namespace has the nodes around it with the IDs of their tasks, and numbers where one was called again. */
export function nodeOf(namespace: readonly string[], name: string): string {
  return [...namespace.filter((part) => !/^\d+$/.test(part)).map((part) => part.split(":")[0]!), name].join(":");
}

/** The nodes that come next; of a subgraph that waits, those inside. */
export function waitingNodes(s: State, namespace: readonly string[] = []): string[] {
  const inside = new Map(s.tasks.flatMap((t) => (t.state && "next" in t.state ? [[t.name, t.state as State] as const] : [])));
  return s.next.flatMap((name) => {
    const nested = inside.get(name);
    return nested && nested.next.length > 0 ? waitingNodes(nested, [...namespace, name]) : [[...namespace, name].join(":")];
  });
}
