import { useEffect, useState } from "react";
import type { Json, JsonObject, Schema } from "../api/types";
import { resolve, typeOf } from "./schema";

interface Props {
  schema: Schema | null | undefined;
  value: Json;
  onChange: (value: Json) => void;
}

/** Fields for an object with a schema; JSON for everything that has no simple field. */
export function SchemaForm({ schema, value, onChange }: Props) {
  const s = resolve(schema, schema);
  if (!s.properties || value === null || typeof value !== "object" || Array.isArray(value)) {
    return <JsonField label="Input (JSON)" value={value} onChange={onChange} />;
  }
  const object = value as JsonObject;
  const set = (name: string, v: Json | undefined) => {
    const { [name]: _, ...rest } = object;
    onChange(v === undefined ? rest : { ...object, [name]: v });
  };
  return (
    <div className="fields">
      {Object.entries(s.properties).map(([name, raw]) => (
        <Field key={name} name={name} schema={resolve(raw, schema)} required={s.required?.includes(name) ?? false} value={object[name]} onChange={(v) => set(name, v)} />
      ))}
    </div>
  );
}

interface FieldProps {
  name: string;
  schema: Schema;
  required: boolean;
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
}

function Field({ name, schema, required, value, onChange }: FieldProps) {
  const label = (
    <span title={schema.description}>
      {name}
      {required && <span aria-label="required"> *</span>}
    </span>
  );
  if (schema.enum) {
    return (
      <label>
        {label}
        <select value={JSON.stringify(value) ?? ""} onChange={(e) => onChange(e.target.value === "" ? undefined : (JSON.parse(e.target.value) as Json))}>
          {!required && <option value="" />}
          {schema.enum.map((v) => (
            <option key={JSON.stringify(v)} value={JSON.stringify(v)}>
              {String(v)}
            </option>
          ))}
        </select>
      </label>
    );
  }
  switch (typeOf(schema)) {
    case "boolean":
      return (
        <label className="check">
          <input type="checkbox" checked={value === true} onChange={(e) => onChange(e.target.checked)} />
          {label}
        </label>
      );
    case "integer":
    case "number":
      return (
        <label>
          {label}
          <input type="number" step={typeOf(schema) === "integer" ? 1 : "any"} value={typeof value === "number" ? value : ""} onChange={(e) => onChange(e.target.value === "" ? undefined : Number(e.target.value))} />
        </label>
      );
    case "string":
      return (
        <label>
          {label}
          <textarea rows={Math.min(8, String(value ?? "").split("\n").length)} value={typeof value === "string" ? value : ""} onChange={(e) => onChange(e.target.value === "" && !required ? undefined : e.target.value)} />
        </label>
      );
    default:
      return <JsonField label={name} value={value} onChange={onChange} />;
  }
}

/** JSON as text. Text that is no JSON yet stays in the field and is not passed on. */
export function JsonField({ label, value, onChange, autoFocus }: { label: string; value: Json | undefined; onChange: (value: Json) => void; autoFocus?: boolean }) {
  const [text, setText] = useState(() => JSON.stringify(value, null, 2) ?? "");
  const [wrong, setWrong] = useState<string | null>(null);
  useEffect(() => {
    setText((old) => {
      try {
        if (JSON.stringify(JSON.parse(old)) === JSON.stringify(value)) return old;
      } catch {
        if (old.trim() !== "") return old;
      }
      return JSON.stringify(value, null, 2) ?? "";
    });
  }, [value]);
  return (
    <label>
      <span>{label}</span>
      <textarea
        className="code"
        autoFocus={autoFocus}
        spellCheck={false}
        rows={Math.min(16, Math.max(2, text.split("\n").length))}
        value={text}
        aria-invalid={wrong !== null}
        onChange={(e) => {
          setText(e.target.value);
          try {
            onChange(e.target.value.trim() === "" ? null : (JSON.parse(e.target.value) as Json));
            setWrong(null);
          } catch (error) {
            setWrong((error as Error).message);
          }
        }}
      />
      {wrong && <span className="wrong">{wrong}</span>}
    </label>
  );
}
