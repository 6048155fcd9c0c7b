"""Graphs that langchain builds, and those with transformers."""
from __future__ import annotations

from fake import FakeModel
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, SummarizationMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.stream import StreamChannel, StreamTransformer


@tool
def search(q: str) -> str:
    """Look something up."""
    return f"Found 10 results for {q}"


agent = create_agent(FakeModel(), tools=[search], name="agent")

summarizing = create_agent(
    FakeModel(),
    tools=[search],
    name="summarizing",
    middleware=[SummarizationMiddleware(model=FakeModel(), trigger=("messages", 6), keep=("messages", 2))],
)

hitl = create_agent(
    FakeModel(),
    tools=[search],
    name="hitl",
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"search": True})],
)


# --- masked: transformers change and hide what event streams show, and have a channel of their own ---

class Mask(StreamTransformer):
    before_builtins = True
    required_stream_modes = ("messages", "custom")

    def init(self):
        self._found = StreamChannel("found")
        return {"found": self._found}

    def process(self, event):
        data = event["params"]["data"]
        if event["method"] == "custom":
            return data != "hidden"
        if event["method"] == "messages" and isinstance(data[0], dict):
            for part in ("delta", "content"):
                block = data[0].get(part) or {}
                if "w2" in (block.get("text") or ""):
                    block["text"] = block["text"].replace("w2", "--")
                    if part == "delta":
                        self._found.push({"word": "w2", "at": event["params"]["namespace"]})
        return True


async def tell(state: MessagesState):
    writer = get_stream_writer()
    writer("hidden")
    writer({"shown": True})
    reply = await FakeModel(delay=0.005).ainvoke(state["messages"])
    return {"messages": [reply, AIMessage("whole w2", id=f"whole-{len(state['messages'])}")]}


_b = StateGraph(MessagesState)
_b.add_node("tell", tell)
_b.add_edge(START, "tell")
_b.add_edge("tell", END)
masked = _b.compile(transformers=[Mask])
masked_agent = create_agent(FakeModel(), tools=[search], name="masked_agent", transformers=[Mask])
