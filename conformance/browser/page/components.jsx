// A page that shows the components of the graph "weather" with LoadExternalComponent.
import { createRoot } from "react-dom/client";
import { useStream } from "@langchain/langgraph-sdk/react";
import { LoadExternalComponent } from "@langchain/langgraph-sdk/react-ui";

const apiUrl = new URLSearchParams(location.search).get("api");

function Page() {
  const stream = useStream({ apiUrl, assistantId: "weather" });
  const shown = stream.values.ui ?? [];
  return (
    <main>
      <button onClick={() => stream.submit({ messages: [{ type: "human", content: "Oslo" }] })}>Ask</button>
      {shown.map((message) => <LoadExternalComponent key={message.id} stream={stream} message={message} fallback={<p>loading</p>} />)}
      {shown.map((message) => <LoadExternalComponent key={message.id} stream={stream} message={{ ...message, name: "none" }} fallback={<p>nothing of that name</p>} />)}
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
