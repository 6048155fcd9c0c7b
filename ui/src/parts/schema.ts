import type { Json, JsonObject, Schema, Schemas } from "../api/types";

/** The schema with its reference followed and a null alternative removed. */
export function resolve(schema: Schema | null | undefined, root: Schema | null | undefined): Schema {
  let s = schema ?? {};
  for (let i = 0; i < 10 && (s.$ref || s.anyOf); i++) {
    if (s.$ref) {
      const target = root?.$defs?.[s.$ref.split("/").at(-1)!];
      if (!target) break;
      s = { ...target, ...omitRef(s) };
    } else {
      const choices = s.anyOf!.filter((c) => c.type !== "null");
      if (choices.length !== 1) break;
      const { anyOf: _, ...rest } = s;
      s = { ...choices[0]!, ...rest };
    }
  }
  return s;
}

function omitRef({ $ref: _, ...rest }: Schema): Schema {
  return rest;
}

export const typeOf = (s: Schema) => (Array.isArray(s.type) ? s.type.find((t) => t !== "null") : s.type);

/** Whether a graph with this input talks in messages. */
export const chats = (s: Schema | null | undefined) => Boolean(resolve(s, s).properties?.messages);

/** The value that a form begins with: defaults, and what is required and has an obvious value. */
export function initial(schema: Schema | null | undefined): Json {
  const s = resolve(schema, schema);
  if (!s.properties) return {};
  const out: JsonObject = {};
  for (const [name, raw] of Object.entries(s.properties)) {
    const field = resolve(raw, schema);
    if (field.default !== undefined && field.default !== null) out[name] = field.default;
    else if (name === "messages") out[name] = [{ role: "user", content: "" }];
  }
  return out;
}

/** The first that is known to talk, once those before it are known not to, or it is late; else, when all are known or it is late, the first. */
export function firstTalker<A>(few: readonly A[], schemas: readonly { isPending: boolean; data?: Schemas }[], late: boolean): A | undefined {
  for (const [i, s] of schemas.entries()) {
    if (s.isPending && !late) return undefined;
    if (s.data && chats(s.data.input_schema)) return few[i];
  }
  return few[0];
}
