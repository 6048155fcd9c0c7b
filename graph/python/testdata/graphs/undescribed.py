"""Graphs of whose input pydantic makes no schema; of the first one only before Python 3.12."""
from typing import Callable, TypedDict

from langgraph.graph import START, StateGraph


class Inner(TypedDict):
    x: int


class Old(TypedDict):
    question: str
    inner: Inner


class Odd(TypedDict):
    question: str
    call: Callable[[int], int]


def made(schema):
    g = StateGraph(schema)
    g.add_node("a", lambda state: {"question": "?"})
    g.add_edge(START, "a")
    return g.compile()


old, odd = made(Old), made(Odd)
