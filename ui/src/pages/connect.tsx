import { useState } from "react";
import { useSearchParams } from "wouter";
import { apiURL } from "../api/client";
import { useOwn } from "../api/server";
import { languages, talking, word, type Language } from "../api/snippets";
import type { JsonObject } from "../api/types";
import { onArrows, reached } from "../parts/arrows";
import { CopyButton } from "../parts/copy";
import { Problem } from "../parts/problem";
import { chats, initial } from "../parts/schema";
import { useAssistants, useFirstTalker, useSchemas } from "./assistants";

/** How other programs talk to an assistant of this server. */
export default function Connect() {
  const [params, setParams] = useSearchParams();
  const assistants = useAssistants();
  const own = useOwn();
  const talker = useFirstTalker(assistants.data ?? []);
  const assistant = assistants.data?.find((a) => a.assistant_id === params.get("assistant")) ?? talker;
  const schemas = useSchemas(assistant?.assistant_id);
  const [language, setLanguage] = useState<Language>("Python");
  // The assistant that the server made of a graph has the graph's name, which says more than an ID.
  const name = assistant?.metadata?.created_by === "system" ? assistant.graph_id : (assistant?.assistant_id ?? "");
  const talks = schemas.data ? chats(schemas.data.input_schema) : true;
  const input = talks ? { messages: [{ role: "user", content: "Hello" }] } : (initial(schemas.data?.input_schema) as JsonObject);
  const page = `http://localhost:3000/?${new URLSearchParams({ apiUrl: apiURL, assistantId: name })}`;
  return (
    <main className="page connect" aria-busy={assistants.isPending || (assistant !== undefined && schemas.isPending)}>
      <div className="bar wrap">
        <h1>Connect</h1>
        <select aria-label="Assistant" value={assistant?.assistant_id ?? ""} onChange={(e) => setParams((old) => (old.set("assistant", e.target.value), old), { replace: true })}>
          {assistants.data?.map((a) => (
            <option key={a.assistant_id} value={a.assistant_id}>
              {a.name}
            </option>
          ))}
        </select>
      </div>
      <Problem error={assistants.error ?? schemas.error} />
      {assistant && schemas.isPending && <p className="quiet">Reading what the graph takes…</p>}
      {assistants.data?.length === 0 && <p className="quiet">This server has no graphs yet. Add one to langgraph.json; `understudy init` makes an example.</p>}
      {assistant && schemas.isSuccess && (
        <>
          <section aria-label="From a program">
            <div className="bar">
              <h2 className="grow">From a program</h2>
              <span className="tabs" role="tablist" aria-label="Language" onKeyDown={onArrows}>
                {languages.map((l) => (
                  <button key={l} id={`tab-${l}`} type="button" role="tab" aria-controls="program" aria-selected={l === language} tabIndex={reached(l === language)} className="link" onClick={() => setLanguage(l)}>
                    {l}
                  </button>
                ))}
              </span>
            </div>
            <div id="program" role="tabpanel" aria-labelledby={`tab-${language}`}>
              <Code text={talking(language, apiURL, name, input)} what={language} />
            </div>
          </section>
          {talks && (
            <section aria-label="With agent-chat-ui">
              <h2>With agent-chat-ui</h2>
              <p>LangChain's chat page for agents runs on your machine, with Node.js and pnpm:</p>
              <Code
                text={`git clone https://github.com/langchain-ai/agent-chat-ui.git\ncd agent-chat-ui\npnpm install\nNEXT_PUBLIC_API_URL=${word(apiURL)} NEXT_PUBLIC_ASSISTANT_ID=${word(name)} pnpm dev\n`}
                what="the commands"
              />
              <p>
                When it runs, <a href={page} target="_blank" rel="noopener noreferrer">open it with this assistant</a>. Its address takes both settings, so one page serves all assistants.
              </p>
            </section>
          )}
          {own && (
            <section aria-label="From other clients">
              <h2>From other clients</h2>
              <dl className="addresses">
                {(
                  [
                    ["OpenAI's API", `${apiURL}/v1`, "each assistant is a model"],
                    ["MCP", `${apiURL}/mcp`, "each assistant is a tool"],
                    ["A2A", `${apiURL}/a2a/${assistant.assistant_id}`, "this assistant is an agent"],
                  ] as const
                ).map(([protocol, address, what]) => (
                  <div key={protocol}>
                    <dt>{protocol}</dt>
                    <dd>
                      <code>{address}</code> <CopyButton text={address} label={`Copy the address for ${protocol}`} />
                      <span className="quiet">{what}</span>
                    </dd>
                  </div>
                ))}
              </dl>
            </section>
          )}
          <p className="quiet">
            Where the server asks for credentials, programs send an API key as <code>x-api-key</code>, which the SDKs take as <code>api_key</code> and <code>apiKey</code>, or a bearer token.
            {own && (
              <>
                {" "}
                <a href={`${apiURL}/docs/frontend.html`}>Frontends</a> and the other pages of the documentation say more.
              </>
            )}
          </p>
        </>
      )}
    </main>
  );
}

function Code({ text, what }: { text: string; what: string }) {
  return (
    <div className="code-block">
      <pre tabIndex={0} aria-label={what}>
        {text.trimEnd()}
      </pre>
      <CopyButton text={text} label={`Copy ${what}`} />
    </div>
  );
}
