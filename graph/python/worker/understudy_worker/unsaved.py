"""Says which node returned what the checkpointer cannot save. The exception of the serializer names only a type."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# Channels of LangGraph's own, in the words of its documentation.
_CHANNELS = {"__pregel_tasks": "the argument of a Send", "__interrupt__": "an interrupt", "__return__": "its result", "__end__": "its result", "__previous__": "what it saves", "__root__": "the state"}
_PULL = "~__pregel_pull, "
_DEEPEST = 20


def explain(exc: BaseException, dumps: Callable[[Any], Any], channel: str, value: Any, task_path: str) -> None:
    """Adds a note to the exception of dumps(value). The log derives its advice from the first words."""
    try:
        at, part = _part(dumps, value)
        named = repr(task_path[len(_PULL):]) if task_path.startswith(_PULL) else ""
        who = f"node {named} returned" if named else "the run has"
        where = _CHANNELS.get(channel) or f"key {channel!r}"
        note = f"cannot be saved: {who} a {type(part).__qualname__!r} object in {where}{at and f', at {at}'}"
        exc.__notes__ = [*getattr(exc, "__notes__", ()), note]  # type: ignore[attr-defined]  # add_note is of Python 3.11
    except Exception:
        pass  # values of the graph may do anything; the exception itself says less


def _part(dumps: Callable[[Any], Any], value: Any) -> tuple[str, Any]:
    """The innermost part that dumps refuses, and where it is: "['x'][0]"."""
    at = ""
    for _ in range(_DEEPEST):
        for name, part in _parts(value):
            try:
                dumps(part)
            except Exception:
                at, value = at + name, part
                break
        else:
            break
    return at, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"[{key!r}]", part
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield f"[{i}]", part
    elif isinstance(value, (set, frozenset)):
        for part in value:
            yield "{}", part
    else:
        slots = (key for kind in type(value).__mro__ for key in getattr(kind, "__slots__", ()))
        for key in (*slots, *getattr(value, "__dict__", ())):
            yield f".{key}", getattr(value, key, None)
