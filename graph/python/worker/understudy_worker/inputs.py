"""Requests of the API as LangGraph's own objects."""
from __future__ import annotations

from typing import Any

from langgraph.types import Command, Send


def command(given: dict[str, Any]) -> Command:
    kwargs: dict[str, Any] = {}
    if "resume" in given:
        kwargs["resume"] = given["resume"]
    update = given.get("update")
    if update is not None:
        if isinstance(update, list) and all(isinstance(u, list) and len(u) == 2 and isinstance(u[0], str) for u in update):
            update = [tuple(u) for u in update]
        kwargs["update"] = update
    goto = given.get("goto")
    if goto is not None:
        # Always a list: LangGraph takes an empty name outside of one for no goto, and LangGraph Server does not.
        kwargs["goto"] = [_goto(g) for g in (goto if isinstance(goto, list) else [goto])]
    return Command(**kwargs)


def _goto(given: Any) -> str | Send:
    if isinstance(given, dict):
        return Send(given["node"], given.get("input"))
    return given
