// A chat on useStream, as an application would write it. The address says which server, graph, thread and how much history:
//   ?api=http://127.0.0.1:2024&assistant=agent&thread=<id>&history=1|true|false
import { useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { useStream } from "@langchain/langgraph-sdk/react";
import { Message } from "./message.jsx";

const address = new URLSearchParams(location.search);
const assistantId = address.get("assistant") ?? "agent";
const history = address.get("history") ?? "1";
const fetchStateHistory = history === "true" || history === "false" ? history === "true" : { limit: Number(history) };

function useThreadInAddress() {
  const [threadId, setThreadId] = useState(address.get("thread"));
  return [threadId, (id) => {
    setThreadId(id);
    const url = new URL(location);
    if (id) url.searchParams.set("thread", id);
    else url.searchParams.delete("thread");
    window.history.replaceState({}, "", url);
  }];
}

function Chat() {
  const [threadId, setThreadId] = useThreadInAddress();
  const [events, setEvents] = useState([]);
  const note = (name, detail) => setEvents((before) => [...before, { name, detail }]);

  const chat = useStream({
    apiUrl: address.get("api") ?? "http://127.0.0.1:2024",
    assistantId,
    threadId,
    onThreadId: setThreadId,
    reconnectOnMount: true,
    fetchStateHistory,
    throttle: true,
    onCreated: (run) => note("created", run.run_id),
    onUpdateEvent: (update) => note("update", Object.keys(update).join(" ")),
    onCustomEvent: (event) => note("custom", JSON.stringify(event)),
    onError: (error) => note("error", String(error?.message ?? error)),
    onFinish: (state) => note("finish", (state?.next ?? []).join(" ")),
  });

  // What a person types is a message; a line that begins with a brace is the whole input of a graph without messages.
  const send = (text) => {
    if (text.startsWith("{")) return chat.submit(JSON.parse(text));
    const message = { type: "human", content: text, id: crypto.randomUUID() };
    return chat.submit({ messages: [message] }, { optimisticValues: (now) => ({ ...now, messages: [...(now.messages ?? []), message] }) });
  };
  // Both begin at the checkpoint before the message: a new branch of the thread.
  const edit = (from, text) => chat.submit({ messages: [{ type: "human", content: text }] }, { checkpoint: from });
  const regenerate = (from) => chat.submit(undefined, { checkpoint: from });

  const { messages: _, __interrupt__, ...rest } = chat.values ?? {};
  return (
    <>
      <header>
        <h1>{assistantId}</h1>
        <span id="status" data-status={chat.isThreadLoading ? "loading" : chat.isLoading ? "running" : "idle"}>
          {chat.isThreadLoading ? "loading the conversation" : chat.isLoading ? "answering" : "ready"}
        </span>
        <button onClick={() => setThreadId(null)} disabled={chat.isLoading}>New chat</button>
      </header>
      <main>
        <ol id="messages">
          {chat.messages.map((message, i) => (
            <Message key={message.id ?? i} message={message} meta={chat.getMessagesMetadata(message, i)} busy={chat.isLoading}
              onEdit={edit} onRegenerate={regenerate} onBranch={chat.setBranch} />
          ))}
        </ol>
        {Object.keys(rest).length > 0 && <pre id="values">{JSON.stringify(rest, null, 2)}</pre>}
        {chat.interrupt && <Question interrupt={chat.interrupt} busy={chat.isLoading} onAnswer={(resume) => chat.submit(undefined, { command: { resume } })} />}
        {chat.error != null && <p role="alert">{String(chat.error?.message ?? chat.error)}</p>}
      </main>
      <Composer busy={chat.isLoading} onSend={send} onStop={() => chat.stop()} />
      <details>
        <summary>{events.length} events</summary>
        <ol id="events">{events.map((e, i) => <li key={i} data-name={e.name}>{e.detail}</li>)}</ol>
      </details>
    </>
  );
}

function Composer({ busy, onSend, onStop }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (text.trim() && !busy) onSend(text.trim());
    setText("");
  };
  return (
    <form id="composer" onSubmit={submit}>
      <input name="text" aria-label="Message" placeholder="say 5, or call search {&quot;q&quot;: &quot;cats&quot;}" value={text} onChange={(e) => setText(e.target.value)} />
      {busy ? <button type="button" onClick={onStop}>Stop</button> : <button type="submit" disabled={!text.trim()}>Send</button>}
    </form>
  );
}

// A graph asks. Requests to approve tool calls get a button; other questions a line to answer.
function Question({ interrupt, busy, onAnswer }) {
  const [text, setText] = useState("");
  const value = interrupt.value ?? interrupt;
  const requests = value?.action_requests;
  return (
    <section id="question">
      <pre>{JSON.stringify(value, null, 2)}</pre>
      {requests ? (
        <button disabled={busy} onClick={() => onAnswer({ decisions: requests.map(() => ({ type: "approve" })) })}>Approve</button>
      ) : (
        <form onSubmit={(e) => { e.preventDefault(); onAnswer(text); }}>
          <input name="answer" aria-label="Answer" value={text} onChange={(e) => setText(e.target.value)} />
          <button disabled={busy}>Resume</button>
        </form>
      )}
    </section>
  );
}

function Page() {
  const bottom = useRef(null);
  useEffect(() => {
    const watch = new MutationObserver(() => bottom.current?.scrollIntoView());
    watch.observe(document.getElementById("root"), { childList: true, subtree: true, characterData: true });
    return () => watch.disconnect();
  }, []);
  return <><Chat /><div ref={bottom} /></>;
}

createRoot(document.getElementById("root")).render(<Page />);
