import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, Save, Trash2 } from "lucide-react";
import { useState } from "react";
import { useSearchParams } from "wouter";
import { post, request } from "../api/client";
import { readAgain } from "../api/read-again";
import type { Item, Json } from "../api/types";
import { Age } from "../parts/age";
import { CopyCall } from "../parts/copy-call";
import { JsonView } from "../parts/json";
import { Empty, Problem } from "../parts/problem";
import { JsonField } from "../parts/schema-form";

const size = 50;

/** The store: what graphs remember beyond a thread, by namespace. */
export function StorePage() {
  const [params, setParams] = useSearchParams();
  const prefix = params.getAll("ns");
  const [words, setWords] = useState("");
  const [adding, setAdding] = useState(false);
  const go = (ns: string[]) => setParams(new URLSearchParams(ns.map((part) => ["ns", part])));
  const below = useQuery({
    queryKey: ["namespaces", prefix],
    queryFn: ({ signal }) => post<{ namespaces: string[][] }>("/store/namespaces", { prefix, max_depth: prefix.length + 1, limit: 1000 }, signal),
  });
  const items = useInfiniteQuery({
    queryKey: ["items", prefix, words],
    initialPageParam: 0,
    queryFn: ({ pageParam, signal }) =>
      post<{ items: Item[] }>("/store/items/search", { namespace_prefix: prefix, limit: size, offset: pageParam, query: words || undefined }, signal),
    getNextPageParam: (last, pages) => (last.items.length < size ? undefined : pages.length * size),
  });
  const children = (below.data?.namespaces ?? []).filter((ns) => ns.length > prefix.length);
  const all = items.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <main className="page">
      <div className="bar">
        <h1>Store</h1>
        <CopyCall of={{ method: "POST", path: "/store/items/search", body: { namespace_prefix: prefix, limit: size, ...(words && { query: words }) } }} />
      </div>
      <nav className="tabs" aria-label="Namespace">
        <button type="button" className="link" onClick={() => go([])}>
          all
        </button>
        {prefix.map((part, i) => (
          <button key={i} type="button" className="link" aria-current={i === prefix.length - 1} onClick={() => go(prefix.slice(0, i + 1))}>
            {part}
          </button>
        ))}
      </nav>
      <Problem error={below.error ?? items.error} />
      {children.length > 0 && (
        <ul className="chips" aria-label="Namespaces below">
          {children.map((ns) => (
            <li key={ns.join("\n")}>
              <button type="button" className="plain" onClick={() => go(ns)}>
                {ns.at(-1)}
              </button>
            </li>
          ))}
        </ul>
      )}
      <div className="bar">
        <form
          className="bar grow"
          onSubmit={(e) => {
            e.preventDefault();
            setWords(String(new FormData(e.currentTarget).get("words") ?? ""));
          }}
        >
          <input type="search" name="words" aria-label="Search by meaning" placeholder="Search by meaning, where the server embeds items" />
        </form>
        <button type="button" className="plain" disabled={prefix.length === 0} title={prefix.length === 0 ? "Choose a namespace first" : undefined} onClick={() => setAdding(!adding)}>
          <Plus size={14} aria-hidden /> Add
        </button>
      </div>
      {adding && <Editor namespace={prefix} onDone={() => setAdding(false)} />}
      {items.isSuccess && all.length === 0 && <Empty>{words ? "Nothing is like these words." : "Nothing is stored here. Graphs put items with get_store(), clients with client.store.put_item."}</Empty>}
      {all.map((item) => (
        <ItemCard key={[...item.namespace, item.key].join("\n")} item={item} />
      ))}
      {items.hasNextPage && (
        <button type="button" className="plain" onClick={() => void items.fetchNextPage()}>
          More
        </button>
      )}
    </main>
  );
}

function ItemCard({ item }: { item: Item }) {
  const queries = useQueryClient();
  const [editing, setEditing] = useState(false);
  const remove = useMutation({
    mutationFn: () => request("DELETE", "/store/items", { body: { namespace: item.namespace, key: item.key } }),
    onSuccess: () => readAgain(queries, ["items"], ["namespaces"]),
  });
  return (
    <article className="card" aria-label={item.key}>
      <header className="bar wrap">
        <b>{item.key}</b>
        <span className="quiet">{item.namespace.join(" / ")}</span>
        <Age of={item.updated_at} />
        <button type="button" className="plain" aria-pressed={editing} onClick={() => setEditing(!editing)}>
          Edit
        </button>
        <button type="button" className="icon" aria-label={`Delete ${item.key}`} onClick={() => confirm(`Delete “${item.key}”?`) && remove.mutate()}>
          <Trash2 size={14} />
        </button>
      </header>
      {editing ? <Editor namespace={item.namespace} name={item.key} value={item.value} onDone={() => setEditing(false)} /> : <JsonView value={item.value} open={1} />}
      <Problem error={remove.error} />
    </article>
  );
}

function Editor({ namespace, name, value, onDone }: { namespace: string[]; name?: string; value?: Json; onDone: () => void }) {
  const queries = useQueryClient();
  const [key, setKey] = useState(name ?? "");
  const [json, setJSON] = useState<Json>(value ?? {});
  const [minutes, setMinutes] = useState("");
  const put = useMutation({
    mutationFn: () => request("PUT", "/store/items", { body: { namespace, key, value: json, ...(minutes && { ttl: Number(minutes) }) } }),
    onSuccess: async () => {
      await readAgain(queries, ["items"], ["namespaces"]);
      onDone();
    },
  });
  return (
    <form
      className="fields"
      onSubmit={(e) => {
        e.preventDefault();
        put.mutate();
      }}
    >
      {name === undefined && (
        <label>
          <span>Key</span>
          <input autoFocus value={key} onChange={(e) => setKey(e.target.value)} />
        </label>
      )}
      <JsonField label="Value" value={json} onChange={setJSON} />
      <label>
        <span>Minutes until it expires (optional; else as the server has it)</span>
        <input type="number" min="0" step="any" value={minutes} onChange={(e) => setMinutes(e.target.value)} />
      </label>
      <Problem error={put.error} />
      <button type="submit" disabled={!key || put.isPending}>
        <Save size={14} aria-hidden /> Save
      </button>
    </form>
  );
}
