// The two schemas in which agents ask people to review tool calls, in one form: LangChain's HumanInTheLoopMiddleware and the agent inbox.

import type { Json, JsonObject } from "../api/types";

export interface Action {
  name: string;
  args: JsonObject;
  description?: string;
  allows: Decision[];
}

export type Decision = "approve" | "edit" | "reject" | "respond";

export interface Answer {
  decision: Decision;
  args?: JsonObject; // of edit
  text?: string; // of reject and respond
}

export interface Review {
  actions: Action[];
  /** The value to resume with, of one answer per action. */
  resume: (answers: Answer[]) => Json;
}

const object = (v: Json | undefined): JsonObject | null => (v !== null && typeof v === "object" && !Array.isArray(v) ? v : null);

/** Returns what an interrupt asks to review; null if its value has neither schema. */
export function reviewOf(value: Json): Review | null {
  return langchain(value) ?? inbox(value);
}

function langchain(value: Json): Review | null {
  const v = object(value);
  if (!v || !Array.isArray(v.action_requests)) return null;
  const configs = Array.isArray(v.review_configs) ? v.review_configs.map(object) : [];
  const actions = v.action_requests.map((raw): Action => {
    const r = object(raw) ?? {};
    const name = String(r.name ?? r.action ?? "");
    const config = configs.find((c) => c?.action_name === name);
    const allowed = Array.isArray(config?.allowed_decisions) ? config.allowed_decisions.map(String) : ["approve", "edit", "reject"];
    return { name, args: object(r.args ?? r.arguments) ?? {}, description: text(r.description), allows: allowed.filter(isDecision) };
  });
  return {
    actions,
    resume: (answers) => ({
      decisions: answers.map((a, i): Json => {
        if (a.decision === "edit") return { type: "edit", edited_action: { name: actions[i]!.name, args: a.args ?? {} } };
        if (a.decision === "reject") return a.text ? { type: "reject", message: a.text } : { type: "reject" };
        if (a.decision === "respond") return { type: "respond", message: a.text ?? "" };
        return { type: "approve" };
      }),
    }),
  };
}

const isDecision = (s: string): s is Decision => ["approve", "edit", "reject", "respond"].includes(s);

function inbox(value: Json): Review | null {
  const list = Array.isArray(value) ? value : [value];
  const requests = list.map(object);
  if (requests.length === 0 || !requests.every((r) => object(r?.action_request))) return null;
  const actions = requests.map((r): Action => {
    const request = object(r!.action_request)!;
    const config = object(r!.config) ?? {};
    const allows: Decision[] = [];
    if (config.allow_accept !== false) allows.push("approve");
    if (config.allow_edit) allows.push("edit");
    if (config.allow_respond) allows.push("respond");
    if (config.allow_ignore) allows.push("reject");
    return { name: String(request.action ?? ""), args: object(request.args) ?? {}, description: text(r!.description), allows };
  });
  const one = (a: Answer, i: number): Json => {
    if (a.decision === "edit") return { type: "edit", args: { action: actions[i]!.name, args: a.args ?? {} } };
    if (a.decision === "respond") return { type: "response", args: a.text ?? "" };
    if (a.decision === "reject") return { type: "ignore", args: null };
    return { type: "accept", args: null };
  };
  return { actions, resume: (answers) => answers.map(one) }; // a list, as the inbox sends
}

const text = (v: Json | undefined) => (typeof v === "string" && v !== "" ? v : undefined);

/** What is resumed with: the value for a single interrupt, else a value for each ID. */
export function command(answers: { id?: string; value: Json }[]): JsonObject {
  const only = answers.length === 1 ? answers[0]! : null;
  if (only) return { resume: only.value };
  return { resume: Object.fromEntries(answers.map((a) => [a.id ?? "", a.value])) };
}
