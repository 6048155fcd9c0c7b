"""Tools that only graphs in Python can call."""
from typing import Annotated

from langchain_core.tools import tool
from langgraph.prebuilt import InjectedState


@tool
def stateful(text: str, state: Annotated[dict, InjectedState]) -> str:
    """Reads the state."""
    return text
