import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { useStream } from "@langchain/langgraph-sdk/react";

const apiUrl = new URLSearchParams(location.search).get("api") ?? "http://127.0.0.1:2024";

// The text of a message: a string, or blocks.
const text = (content) => (typeof content === "string" ? content : content.map((block) => block.text ?? "").join(""));

function Chat() {
  const [draft, setDraft] = useState("");
  const [threadId, setThreadId] = useState(() => sessionStorage.getItem("thread"));
  const chat = useStream({
    apiUrl,
    assistantId: "chat",
    threadId,
    onThreadId: (id) => {
      sessionStorage.setItem("thread", id); // a reload shows the conversation again
      setThreadId(id);
    },
    reconnectOnMount: true,
  });
  const leave = () => {
    sessionStorage.removeItem("thread");
    setThreadId(null);
  };
  // A thread that was deleted, or has expired, is forgotten. Something else may be missing, too.
  const missing = Boolean(threadId) && /HTTP 404/.test(chat.error?.message);
  const [forgot, setForgot] = useState(false);
  useEffect(() => {
    if (!missing) return;
    chat.client.threads.get(threadId).catch((error) => {
      if (!/Thread with ID/.test(error.message)) return;
      setForgot(true);
      leave();
    });
  }, [missing]);
  const send = (event) => {
    event.preventDefault();
    if (!draft.trim()) return;
    setForgot(false);
    chat.submit(
      { messages: [{ type: "human", content: draft }] },
      { optimisticValues: (values) => ({ ...values, messages: [...(values.messages ?? []), { type: "human", content: draft, id: "draft" }] }) },
    );
    setDraft("");
  };
  return (
    <main>
      {chat.messages.map((message, i) => (
        <p key={message.id ?? i} className={message.type}>
          {text(message.content) || (message.tool_calls ?? []).map((call) => `${call.name}(${JSON.stringify(call.args)})`).join(", ")}
        </p>
      ))}
      {chat.error ? <p role="alert">{String(chat.error.message ?? chat.error)}</p> : null}
      {forgot ? <p role="status">That conversation is not there any more; your next message begins another.</p> : null}
      <form onSubmit={send}>
        <input value={draft} onChange={(event) => setDraft(event.target.value)} placeholder="What is 6 times 7?" aria-label="Message" />
        <button type="button" onClick={leave}>New</button>
        {chat.isLoading ? <button type="button" onClick={() => chat.stop()}>Stop</button> : <button>Send</button>}
      </form>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
