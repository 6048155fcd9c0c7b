"""A graph of two nodes: it counts the words of the last message, then answers.

Replace the nodes with your own. A node gets the state and returns what it changes of it; print() shows up in the log of understudy dev.
"""
from __future__ import annotations

from langgraph.graph import END, START, MessagesState, StateGraph


class State(MessagesState):
    words: int


async def count(state: State) -> dict:
    return {"words": len(str(state["messages"][-1].content).split())}


async def answer(state: State) -> dict:
    print("answering", state["words"], "words")
    return {"messages": [{"role": "ai", "content": f"That was {state['words']} words."}]}


builder = StateGraph(State)
builder.add_node("count", count)
builder.add_node("answer", answer)
builder.add_edge(START, "count")
builder.add_edge("count", "answer")
builder.add_edge("answer", END)
graph = builder.compile()
