"""A conversation of several steps a turn, for the kill loop: each step adds one message that says whose it is."""
import asyncio
from typing import Annotated

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    tag: str
    steps: int
    delay: float
    done: int
    pad: int
    blob: object


def begin(state: State):
    return {"done": 0}


async def step(state: State):
    writer = get_stream_writer()
    for i in range(3):
        writer({"token": i, "tag": state["tag"], "pad": "x" * state.get("pad", 0)})
        await asyncio.sleep(state["delay"] / 3)
    # No id: it is given when the step is saved. A step that is done again must not leave two.
    return {"done": state["done"] + 1, "messages": [AIMessage(f"{state['tag']} {state['done']}")]}


def note(state: State):
    """Nobody comes here; state updates are made in its name."""


builder = StateGraph(State)
builder.add_node("begin", begin)
builder.add_node("step", step)
builder.add_node("note", note)
builder.add_edge(START, "begin")
builder.add_edge("note", END)
builder.add_edge("begin", "step")
builder.add_conditional_edges("step", lambda state: "step" if state["done"] < state["steps"] else END, ["step", END])
graph = builder.compile()
