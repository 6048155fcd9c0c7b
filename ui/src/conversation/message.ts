import type { Block, Message, ToolCall, ToolCallChunk } from "../api/types";

export type Kind = "human" | "ai" | "tool" | "system";

/** The speaker of a message. Roles that the pages do not know are drawn as system. */
export function kindOf(m: Message): Kind {
  const type = m.type.replace(/MessageChunk$/, "").toLowerCase();
  return type === "human" || type === "ai" || type === "tool" ? type : "system";
}

/** The words of a message, without reasoning, pictures and files. */
export function textOf(m: Message): string {
  if (typeof m.content === "string") return m.content;
  return m.content.map((b) => (typeof b === "string" ? b : b.type === "text" ? (b.text ?? "") : "")).join("");
}

/** What a model thought before it answered, where its provider shows that. */
export function reasoningOf(m: Message): string {
  const kept = m.additional_kwargs?.reasoning_content;
  if (typeof kept === "string") return kept;
  if (typeof m.content === "string") return "";
  return m.content.map((b) => (b.type === "reasoning" || b.type === "thinking" ? String(b.reasoning ?? b.thinking ?? b.text ?? "") : "")).join("");
}

/** Blocks that are neither words nor reasoning nor tool calls: pictures, files, sound. */
export function attachmentsOf(m: Message): Block[] {
  if (typeof m.content === "string") return [];
  return m.content.filter((b) => !["text", "reasoning", "thinking", "tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "text_delta"].includes(b.type));
}

/** A call of a tool as it is drawn: args is JSON, which may have no end yet. */
export interface Call {
  id: string;
  name: string;
  args: string;
}

/** The calls in a message, complete or not. */
export function callsOf(m: Message): Call[] {
  const chunks = m.tool_call_chunks ?? [];
  if (chunks.length > 0) return chunks.map((c, i) => ({ id: c.id ?? String(i), name: c.name ?? "", args: c.args ?? "" }));
  return (m.tool_calls ?? []).map((c: ToolCall, i) => ({ id: c.id ?? String(i), name: c.name, args: JSON.stringify(c.args) }));
}

/** Adds a piece of a streamed message to what came before it. A message that is no piece replaces it. */
export function merge(before: Message | undefined, piece: Message): Message {
  if (!before || !piece.type.endsWith("Chunk")) return piece;
  return {
    ...piece,
    content: mergeContent(before.content, piece.content),
    tool_call_chunks: mergeCalls(before.tool_call_chunks ?? [], piece.tool_call_chunks ?? []),
    additional_kwargs: mergeReasoning(before.additional_kwargs, piece.additional_kwargs),
    usage_metadata: piece.usage_metadata ?? before.usage_metadata,
  };
}

function mergeReasoning(a: Message["additional_kwargs"], b: Message["additional_kwargs"]) {
  const [x, y] = [a?.reasoning_content, b?.reasoning_content];
  return typeof x === "string" ? { ...b, reasoning_content: x + (typeof y === "string" ? y : "") } : b;
}

function mergeContent(a: Message["content"], b: Message["content"]): Message["content"] {
  if (typeof a === "string" && typeof b === "string") return a + b;
  const blocks = toBlocks(a).slice();
  for (const block of toBlocks(b)) {
    const at = blocks.findIndex((other) => other.type === block.type && other.index === block.index && (block.index !== undefined || other === blocks.at(-1)));
    if (at < 0) {
      blocks.push(block);
      continue;
    }
    const joined: Block = { ...blocks[at]!, ...block };
    for (const key of ["text", "reasoning", "thinking"]) {
      const [x, y] = [blocks[at]![key], block[key]];
      if (typeof x === "string") joined[key] = x + (typeof y === "string" ? y : "");
    }
    blocks[at] = joined;
  }
  return blocks;
}

function toBlocks(content: Message["content"]): Block[] {
  if (typeof content !== "string") return content.map((b) => (typeof b === "string" ? { type: "text", text: b } : b));
  return content === "" ? [] : [{ type: "text", text: content }];
}

function mergeCalls(a: ToolCallChunk[], b: ToolCallChunk[]): ToolCallChunk[] {
  const calls = a.slice();
  for (const chunk of b) {
    const at = calls.findIndex((c) => (chunk.index == null ? c.id === chunk.id : c.index === chunk.index));
    const before = calls[at];
    if (!before) calls.push(chunk);
    else calls[at] = { ...before, id: before.id ?? chunk.id, name: (before.name ?? "") + (chunk.name ?? ""), args: (before.args ?? "") + (chunk.args ?? "") };
  }
  return calls;
}
