"""Graphs for end-to-end tests: they need nothing but langgraph."""
import asyncio
import operator
import os
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class Ticks(TypedDict, total=False):
    steps: int
    delay: float
    tag: str
    done: int
    items: Annotated[list[str], operator.add]


async def tick(state: Ticks):
    done = state.get("done", 0)
    await asyncio.sleep(state.get("delay", 0))
    return {"done": done + 1, "items": [f"{state['tag']}{done}"]}


def finish(state: Ticks):
    return {"done": 0}


def more(state: Ticks):
    return "tick" if state["done"] < state["steps"] else "finish"


_b = StateGraph(Ticks)
_b.add_node("tick", tick)
_b.add_node("finish", finish)
_b.add_edge(START, "tick")
_b.add_conditional_edges("tick", more, ["tick", "finish"])
_b.add_edge("finish", END)
ticker = _b.compile()


class Echo(TypedDict, total=False):
    n: int


_b = StateGraph(Echo)
_b.add_node("echo", lambda state: {"n": state.get("n", 0) + 1})
_b.add_edge(START, "echo")
_b.add_edge("echo", END)
echo = _b.compile()


def leave(state: Echo):
    os._exit(3)


_b = StateGraph(Echo)
_b.add_node("leave", leave)
_b.add_edge(START, "leave")
_b.add_edge("leave", END)
leaves = _b.compile()
