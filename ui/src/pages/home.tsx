import { useState } from "react";
import { useLocation } from "wouter";
import { post } from "../api/client";
import type { Json, Thread } from "../api/types";
import { Composer } from "../conversation/composer";
import { GraphProblem } from "../graph/graph-problem";
import { onArrows, reached } from "../parts/arrows";
import { Problem } from "../parts/problem";
import { chats } from "../parts/schema";
import { useAssistants, useFirstTalker, useSchemas } from "./assistants";
import { beginWith } from "./thread-page";

/** Where a conversation begins: with which assistant, and with what. */
export function Home() {
  const [, navigate] = useLocation();
  const assistants = useAssistants();
  const [chosen, setChosen] = useState<string | null>(null);
  const talker = useFirstTalker(assistants.data ?? []);
  const assistant = assistants.data?.find((a) => a.assistant_id === chosen) ?? talker;
  const schemas = useSchemas(assistant?.assistant_id);
  const talks = schemas.data ? chats(schemas.data.input_schema) : true;
  const [error, setError] = useState<unknown>(null);

  const begin = async (what: { text?: string; input?: Json }) => {
    setError(null);
    try {
      const thread = await post<Thread>("/threads", { metadata: { graph_id: assistant!.graph_id, assistant_id: assistant!.assistant_id } });
      beginWith({ thread: thread.thread_id, assistant: assistant!.assistant_id, ...what });
      navigate(`/t/${thread.thread_id}`);
    } catch (e) {
      setError(e);
      throw e;
    }
  };
  return (
    <main className="home">
      <h1>Talk to a graph</h1>
      <Problem error={assistants.error} />
      <div className="choices" role="radiogroup" aria-label="Assistant" onKeyDown={onArrows}>
        {assistants.data?.map((a) => (
          <button key={a.assistant_id} type="button" role="radio" aria-checked={a === assistant} tabIndex={reached(a === assistant)} className="choice" onClick={() => setChosen(a.assistant_id)}>
            <b>{a.name}</b>
            {(a.description || a.graph_id !== a.name) && <span className="quiet">{a.description || a.graph_id}</span>}
          </button>
        ))}
      </div>
      {assistants.data?.length === 0 && <p className="quiet">This server has no graphs. Add one to langgraph.json; `understudy init` makes an example.</p>}
      <GraphProblem error={schemas.error} />
      <Composer
        key={assistant?.assistant_id ?? ""}
        draft="new"
        input={schemas.data?.input_schema ?? null}
        chats={talks}
        busy={false}
        disabled={!assistant}
        placeholder={`Say something to ${assistant?.name ?? "the assistant"}`}
        onSay={(text) => begin({ text })}
        onInput={(input) => begin({ input })}
        onStop={async () => {}}
      />
      <Problem error={error} />
    </main>
  );
}
