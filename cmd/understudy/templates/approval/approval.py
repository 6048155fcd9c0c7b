"""A person decides before something is done: the run stops at an interrupt and goes on with their answer.

Resume it with "send", with "discard", or with {"letter": "..."} to send other words.
"""
from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class Letter(TypedDict, total=False):
    to: str
    about: str
    letter: str
    outcome: str


def write(state: Letter) -> Letter:
    return {"letter": f"Dear {state.get('to', 'reader')},\n\nabout {state.get('about', 'nothing')}: all is well.\n\nYours, understudy"}


def ask(state: Letter) -> Command[Literal["send", "__end__"]]:
    answer = interrupt({"question": "Send this letter?", "letter": state["letter"], "answers": ["send", "discard", {"letter": "other words"}]})
    if isinstance(answer, dict) and answer.get("letter"):
        return Command(update={"letter": answer["letter"]}, goto="send")
    if answer == "send":
        return Command(goto="send")
    return Command(update={"outcome": "discarded"}, goto=END)


def send(state: Letter) -> Letter:
    return {"outcome": f"sent to {state.get('to', 'reader')}"}


builder = StateGraph(Letter)
builder.add_node("write", write)
builder.add_node("ask", ask)
builder.add_node("send", send)
builder.add_edge(START, "write")
builder.add_edge("write", "ask")
builder.add_edge("send", END)
graph = builder.compile()
