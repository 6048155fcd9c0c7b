// Shapes of the API as the pages use them. Fields that no page reads are left out.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface Block {
  type: string;
  text?: string;
  index?: number;
  [key: string]: unknown;
}

export interface ToolCall {
  id?: string | null;
  name: string;
  args: JsonObject;
}

/** A part of a call while it is streamed: args is the beginning of JSON. */
export interface ToolCallChunk {
  id?: string | null;
  name?: string | null;
  args?: string | null;
  index?: number | null;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
}

export interface Message {
  id?: string | null;
  type: string; // human, ai, tool, system, and AIMessageChunk while it is streamed
  content: string | Block[];
  name?: string | null;
  tool_calls?: ToolCall[];
  tool_call_chunks?: ToolCallChunk[];
  tool_call_id?: string;
  status?: string;
  additional_kwargs?: Record<string, unknown>;
  usage_metadata?: Usage | null;
}

/** A row of GET /threads/{id}/messages: a message, or a marker of messages that were condensed. */
export interface Row {
  seq: number;
  run_id: string | null;
  event_type: string;
  category: string;
  content: Message | Condensed;
  metadata: { checkpoint_id?: string; after_seq?: number; partial?: boolean; truncated?: boolean; [key: string]: unknown };
  created_at: string;
}

export interface Condensed {
  replaced_count: number;
  summary: string;
}

export interface Interrupt {
  id?: string;
  value: Json;
  response_schema?: JsonObject | null;
}

export type ThreadStatus = "idle" | "busy" | "interrupted" | "error";

export interface Thread {
  thread_id: string;
  created_at: string;
  updated_at: string;
  state_updated_at?: string;
  metadata: JsonObject;
  status: ThreadStatus;
  interrupts?: Record<string, Interrupt[]>;
  extracted?: { title?: Json; first?: Json; last?: Json; tokens?: Json };
  values?: JsonObject | null;
  error?: Json;
}

export type RunStatus = "pending" | "running" | "success" | "error" | "timeout" | "interrupted";

export interface Run {
  run_id: string;
  thread_id: string;
  assistant_id: string;
  created_at: string;
  updated_at: string;
  status: RunStatus;
  metadata: JsonObject;
  multitask_strategy?: string;
  kwargs?: { command?: { resume?: Json } | null; config?: { configurable?: { langgraph_auth_user_id?: Json } } };
}

export interface Assistant {
  assistant_id: string;
  graph_id: string;
  name: string;
  description?: string | null;
  version: number;
  created_at: string;
  updated_at: string;
  config: JsonObject;
  context: JsonObject;
  metadata: JsonObject;
}

export interface Drawing {
  nodes: { id: string; type?: string; data?: { name?: string } | string; metadata?: JsonObject }[];
  edges: { source: string; target: string; conditional?: boolean; data?: string }[];
}

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: Json[];
  const?: Json;
  default?: Json;
  anyOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
}

export interface Schemas {
  graph_id: string;
  input_schema?: Schema | null;
  state_schema?: Schema | null;
  context_schema?: Schema | null;
}

export interface State {
  values: Json;
  next: string[];
  tasks: { id: string; name: string; error?: string | null; interrupts: Interrupt[]; state?: State | JsonObject | null }[]; // the state of a subgraph, if it is asked for
  checkpoint: { checkpoint_id: string };
  parent_checkpoint: { checkpoint_id: string } | null;
  metadata: JsonObject;
  created_at: string;
}

export interface Cron {
  cron_id: string;
  thread_id: string | null;
  assistant_id: string;
  schedule: string;
  timezone?: string | null;
  next_run_date: string | null;
  enabled?: boolean;
  on_run_completed?: string | null; // delete or keep
  payload: JsonObject;
}

export interface Item {
  namespace: string[];
  key: string;
  value: Json;
  created_at: string;
  updated_at: string;
}
