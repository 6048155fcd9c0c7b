"""Says which node returned what the checkpointer cannot save. The exception of the serializer names only a type, that of the socket only a size."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Channels of LangGraph's own, in the words of its documentation.
_CHANNELS = {"__pregel_tasks": "the argument of a Send", "__interrupt__": "an interrupt", "__return__": "its result", "__end__": "its result", "__previous__": "what it saves", "__root__": "the state"}
PULL = "~__pregel_pull, "
_DEEPEST = 20


def explain(exc: BaseException, dumps: Callable[[Any], Any], channel: str, value: Any, task_path: str) -> None:
    """Adds a note to the exception of dumps(value). The log derives its advice from the first words."""
    try:
        at, part = _part(dumps, value)
        note(exc, f"cannot be saved: {_who(task_path)} a {type(part).__qualname__!r} object in {_where(channel)}{at and f', at {at}'}")
    except Exception:
        pass  # values of the graph may do anything; the exception itself says less


def too_large(exc: BaseException, sizes: Iterable[tuple[str, int]], task_path: str = "") -> None:
    """Adds a note to the exception of a message that does not fit: the largest part, by channel."""
    channel, size = max(sizes, key=lambda part: part[1], default=("", 0))
    if size:
        note(exc, f"too large: {_who(task_path)} {size} bytes in {_where(channel)}")


def note(exc: BaseException, text: str) -> None:
    exc.__notes__ = [*getattr(exc, "__notes__", ()), text]  # type: ignore[attr-defined]  # add_note is of Python 3.11


def _who(task_path: str) -> str:
    return f"node {task_path[len(PULL):]!r} returned" if task_path.startswith(PULL) else "the run has"


def _where(channel: str) -> str:
    return _CHANNELS.get(channel) or f"key {channel!r}"


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
