"""An agent with a tool: the model decides, the tool calculates, the model answers."""
from __future__ import annotations

import ast
import operator
import os

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from scripted_model import ScriptedModel

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.USub: operator.neg}


@tool
def calculate(expression: str) -> str:
    """Works out a sum such as `(3 + 4) * 6`."""
    try:
        return f"{value(ast.parse(expression, mode='eval').body):g}"
    except (SyntaxError, TypeError, KeyError, ZeroDivisionError) as problem:
        return f"not to be had: {problem}"


def value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, op, right):
            return OPERATORS[type(op)](value(left), value(right))
        case ast.UnaryOp(op, operand):
            return OPERATORS[type(op)](value(operand))
    raise TypeError(f"{ast.unparse(node)} is no number")


def chat_model() -> BaseChatModel:
    """MODEL of .env, such as openai:gpt-4o; without it one that needs no key."""
    if name := os.environ.get("MODEL"):
        from langchain.chat_models import init_chat_model

        return init_chat_model(name)
    return ScriptedModel()


tools = [calculate]
model = chat_model().bind_tools(tools)


async def call_model(state: MessagesState) -> dict:
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("model", call_model)
builder.add_node("tools", ToolNode(tools))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()
