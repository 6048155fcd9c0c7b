// A chat on useStream of @langchain/react, which speaks event streaming, as an application would write it. The address says which server, graph and thread:
//   ?api=http://127.0.0.1:2024&assistant=agent&thread=<id>&history=100
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { useStream } from "@langchain/react";
import { Message } from "./message.jsx";

const address = new URLSearchParams(location.search);
const assistantId = address.get("assistant") ?? "agent";

function useThreadInAddress() {
  const [threadId, setThreadId] = useState(address.get("thread"));
  return [threadId, (id) => {
    setThreadId(id);
    const url = new URL(location);
    url.searchParams.set("thread", id);
    window.history.replaceState({}, "", url);
  }];
}

function Chat() {
  const [threadId, setThreadId] = useThreadInAddress();
  const [events, setEvents] = useState([]);
  const note = (name, detail) => setEvents((before) => [...before, { name, detail }]);
  const chat = useStream({
    apiUrl: address.get("api"),
    transport: address.get("transport") ?? "sse",
    assistantId,
    threadId,
    onThreadId: setThreadId,
    onCreated: ({ runId }) => note("created", runId),
    onCompleted: ({ reason }) => note("completed", reason),
  });

  const before = useCheckpoints(threadId, chat);
  const edit = (from, text) => chat.submit({ messages: [{ type: "human", content: text }] }, { forkFrom: from.checkpoint_id });
  const regenerate = (from) => chat.submit(null, { forkFrom: from.checkpoint_id });
  // What a person types is a message; a line that begins with a brace is the whole input of a graph without messages.
  const send = (text) => chat.submit(text.startsWith("{") ? JSON.parse(text) : { messages: [{ type: "human", content: text }] });
  const { messages: _, ...rest } = chat.values ?? {};
  return (
    <>
      <header>
        <h1>{assistantId}</h1>
        <span id="status" data-status={chat.isThreadLoading ? "loading" : chat.isLoading ? "running" : "idle"} />
      </header>
      <main>
        <ol id="messages">
          {chat.messages.map((message, i) => (
            <Message key={message.id ?? i} message={message} meta={before[message.id]} busy={chat.isLoading} onEdit={edit} onRegenerate={regenerate} />))}
        </ol>
        {Object.keys(rest).length > 0 && <pre id="values">{JSON.stringify(rest, null, 2)}</pre>}
        {/* By its id: after a reload the state has the question before the stream has it, and without an id only that of the stream is found. */}
        {chat.interrupt && <Question interrupt={chat.interrupt} onAnswer={(response) => chat.respond(response, { interruptId: chat.interrupt.id })} />}
        {chat.error != null && <p role="alert">{String(chat.error?.message ?? chat.error)}</p>}
      </main>
      <Composer busy={chat.isLoading} onSend={send} onStop={() => chat.stop()} />
      <ol id="events">{events.map((e, i) => <li key={i} data-name={e.name}>{e.detail}</li>)}</ol>
    </>
  );
}

// useCheckpoints returns the first state that has each message, by whose parent it is edited or made again: the hook itself knows only the newest checkpoint.
function useCheckpoints(threadId, chat) {
  const [firstSeen, setFirstSeen] = useState({});
  const limit = Number(address.get("history") ?? 0);
  useEffect(() => {
    if (!limit || !threadId || chat.isLoading) return;
    const read = async () => {
      const states = await chat.client.threads.getHistory(threadId, { limit });
      const byId = Object.fromEntries(states.map((state) => [state.checkpoint.checkpoint_id, state]));
      const found = {};
      for (let state = states[0]; state; state = byId[state.parent_checkpoint?.checkpoint_id]) {
        for (const message of state.values.messages ?? []) found[message.id] = { firstSeenState: state };
      }
      setFirstSeen(found);
    };
    read();
  }, [threadId, chat.isLoading, chat.messages.length]);
  return firstSeen;
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
      <input name="text" aria-label="Message" value={text} onChange={(e) => setText(e.target.value)} />
      {busy ? <button type="button" onClick={onStop}>Stop</button> : <button type="submit" disabled={!text.trim()}>Send</button>}
    </form>
  );
}

function Question({ interrupt, onAnswer }) {
  const requests = interrupt.value?.action_requests;
  return (
    <section id="question">
      <pre>{JSON.stringify(interrupt.value, null, 2)}</pre>
      <button onClick={() => onAnswer(requests ? { decisions: requests.map(() => ({ type: "approve" })) } : "yes")}>Answer</button>
    </section>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
