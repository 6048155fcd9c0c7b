"""Nodes whose code is in many kinds of things."""
import functools
from typing import TypedDict

from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode


class State(TypedDict, total=False):
    n: int
    messages: list


def plain(state):
    return {"n": 1}


async def awaited(state):
    return {"n": 1}


def logged(fn):
    @functools.wraps(fn)
    def call(state):
        return fn(state)

    return call


@logged
def wrapped(state):
    return {"n": 1}


class Callable:
    def __call__(self, state):
        return {"n": 1}


def given(number, state):
    return {"n": number}


def sub():
    b = StateGraph(State)
    b.add_node("deep", plain)
    b.add_edge(START, "deep")
    return b.compile()


nodes = {
    "plain": plain, "awaited": awaited, "wrapped": wrapped, "callable": Callable(), "partial": functools.partial(given, 3), "lambda": lambda state: {"n": 1},
    "runnable": RunnableLambda(plain), "sequence": RunnableLambda(plain) | RunnablePassthrough(), "tools": ToolNode([]), "sub": sub(), "passing": RunnablePassthrough(),
}
_b = StateGraph(State)
for name, node in nodes.items():
    _b.add_node(name, node)
    _b.add_edge(START, name)
graph = _b.compile()
