"""The Python twin of the graph in interop_test.go."""
from __future__ import annotations

import json
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt

LC = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "not a message"}}


class State(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    data: Any
    items: Annotated[list, operator.add]
    answer: Any
    part: Any


def tools(state: State):
    n = len(state.get("items", []))
    return {
        "messages": [
            AIMessage("", id=f"a{n}", tool_calls=[{"name": "f", "args": {"given": LC}, "id": f"c{n}"}]),
            ToolMessage(json.dumps(LC, separators=(",", ":")), tool_call_id=f"c{n}", id=f"t{n}", artifact={"result": LC}),
        ],
        "items": ["tools"],
    }


def fan(state: State):
    return [Send("part", {"part": LC}), Send("part", {"part": state["data"]})]


def part(state: State):
    return {"items": [state["part"]]}


def ask(state: State):
    answer = interrupt({"lc": 2, "question": state["data"]})
    return {"answer": answer, "items": ["ask"]}


def finish(state: State):
    # Everything is a plain mapping still, wherever it was in between.
    values = [state["data"], state["answer"], *[i for i in state["items"] if not isinstance(i, str)], state["messages"][-1].artifact]
    kinds = ",".join("mapping" if type(v) is dict else type(v).__name__ for v in values)
    return {"items": ["finish"], "messages": [AIMessage(f"{kinds} after {len(state['messages'])}", id=f"e{len(state['items'])}")]}


_b = StateGraph(State)
for _node in (tools, part, ask, finish):
    _b.add_node(_node.__name__, _node)
_b.add_edge(START, "tools")
_b.add_conditional_edges("tools", fan, ["part"])
_b.add_edge("part", "ask")
_b.add_edge("ask", "finish")
_b.add_edge("finish", END)
graph = _b.compile()
