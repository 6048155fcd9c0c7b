"""What of an exception a client may see."""
from __future__ import annotations

import asyncio
import sys
import traceback
from typing import Any

from langgraph import errors as lg

from .wire import FrameTooLarge

MASK = "An internal error occurred"

_SHOWN: tuple[type[BaseException], ...] = (
    ValueError, TypeError, KeyError, AttributeError, RuntimeError, TimeoutError, asyncio.TimeoutError, FrameTooLarge,
    *(v for v in vars(lg).values() if isinstance(v, type) and issubclass(v, BaseException) and v.__module__ == lg.__name__),
)


def message(exc: BaseException) -> str:
    """The text of exceptions of common kinds; those of a graph's own may tell secrets."""
    if isinstance(exc, _SHOWN) or _http(exc):
        try:
            return str(exc)
        except Exception:
            return MASK
    return MASK


def _http(exc: BaseException) -> bool:
    return any(c.__name__ == "HTTPException" and c.__module__.startswith(("starlette.", "fastapi.")) for c in type(exc).__mro__)


def shown(exc: BaseException) -> dict[str, Any]:
    return {"error": type(exc).__name__, "message": message(exc)}


def detail(exc: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(exc))
        if sys.version_info < (3, 11):
            text += "".join(f"{note}\n" for note in getattr(exc, "__notes__", ()))
        return text[-32768:]
    except Exception:
        return repr(type(exc))
