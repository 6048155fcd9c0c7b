"""A graph that shows components, and one that has none."""
import operator
from typing import Annotated, TypedDict
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.ui import AnyUIMessage, delete_ui_message, push_ui_message, ui_message_reducer


class Shown(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    ui: Annotated[list[AnyUIMessage], ui_message_reducer]


async def forecast(state: Shown):
    city = state["messages"][-1].text
    answer = AIMessage(f"The weather in {city}:", id=str(uuid4()))
    shown = push_ui_message("weather", {"city": city}, message=answer, metadata={"source": "test"})
    push_ui_message("weather", {"degrees": 21}, id=shown["id"], message=answer, merge=True)
    passing = push_ui_message("spinner", {}, message=answer)
    delete_ui_message(passing["id"])
    return {"messages": [answer]}


weather = StateGraph(Shown).add_node(forecast).add_edge(START, "forecast").add_edge("forecast", END).compile()


class Plain(TypedDict):
    n: Annotated[int, operator.add]


plain = StateGraph(Plain).add_node("one", lambda state: {"n": 1}).add_edge(START, "one").compile()
