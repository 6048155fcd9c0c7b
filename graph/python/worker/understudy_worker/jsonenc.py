"""Python values as the JSON of the API, exact and never failing.

orjson does nearly everything; `_default` adds what it does not know. What orjson refuses altogether (integers beyond 64 bits, lone
surrogates, odd keys, cycles, very deep nesting) is made plain first, which is slow and rare.
"""
from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import math
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Mapping
from typing import Any

import orjson
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.types import Send

from . import errors

OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
MAX_DEPTH = 900

# Classes whose model_dump() is known to be their fields, as they are and in this order. Others may have serialisers of their own.
_FIELDS: dict[type, tuple[str, ...]] = {
    cls: tuple(cls.model_fields)
    for cls in (
        AIMessage, AIMessageChunk, HumanMessage, HumanMessageChunk, SystemMessage, SystemMessageChunk, ToolMessage, ToolMessageChunk,
        ChatMessage, ChatMessageChunk, FunctionMessage, FunctionMessageChunk, RemoveMessage,
    )
}


def message_dict(message: BaseMessage) -> dict[str, Any]:
    fields = _FIELDS.get(type(message))
    if fields is None or message.__pydantic_extra__:
        return message.model_dump()
    held = message.__dict__
    try:
        return {k: held[k] for k in fields}
    except KeyError:
        return message.model_dump()


def message_fields(message: BaseMessage) -> dict[str, Any]:
    """The fields of a message of any class as they are; unlike model_dump, what is nested in them is not copied."""
    held = message.__dict__
    return {**{k: held[k] for k in type(message).model_fields if k in held}, **(message.__pydantic_extra__ or {})}


def _simple(obj: Any) -> Any:
    """One step towards JSON for what orjson does not know; None for what has no form in it."""
    if isinstance(obj, BaseMessage):
        return message_dict(obj)
    if isinstance(obj, type):
        return None
    if hasattr(obj, "get_secret_value"):
        return None
    if callable(getattr(obj, "model_dump", None)):
        return obj.model_dump()
    if isinstance(obj, (set, frozenset, collections.deque)):
        return list(obj)
    if isinstance(obj, tuple):
        return obj._asdict() if hasattr(obj, "_asdict") else list(obj)
    if isinstance(obj, BaseException):
        return errors.shown(obj)
    if isinstance(obj, datetime.timedelta):
        return obj.total_seconds()
    if isinstance(obj, decimal.Decimal):
        if not obj.is_finite():
            return None
        return int(obj) if obj.as_tuple().exponent >= 0 else float(obj)
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return base64.b64encode(obj).decode("ascii")
    if isinstance(obj, (pathlib.PurePath, ipaddress._IPAddressBase, zoneinfo.ZoneInfo)):
        return str(obj)
    if isinstance(obj, re.Pattern):
        return obj.pattern
    if isinstance(obj, Send):
        return {"node": obj.node, "args": obj.arg}
    if isinstance(obj, Mapping):
        return dict(obj)
    if callable(getattr(obj, "dict", None)):  # pydantic 1
        return obj.dict()
    if isinstance(obj, collections.UserString):
        return str(obj)
    if isinstance(obj, collections.UserList):
        return list(obj)
    if hasattr(obj, "__slots__") and hasattr(obj, "namespace") and callable(getattr(obj, "dict", None)):
        return obj.dict()
    return None


def _default(obj: Any) -> Any:
    try:
        return _simple(obj)
    except Exception:
        return None


def dumps(obj: Any) -> bytes:
    try:
        out = orjson.dumps(obj, default=_default, option=OPTIONS)
    except Exception:
        out = _slow(obj)
    return _without_nul(out) if b"\\u0000" in out else out


# An escaped NUL, which is not the end of an escaped backslash.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def _without_nul(out: bytes) -> bytes:
    # Twice, for two in a row share no character but the pattern looks behind.
    return _NUL.sub(rb"\1\\ufffd", out)


def _slow(obj: Any) -> bytes:
    # How deep Python gets depends on where it is called.
    for depth in (MAX_DEPTH, MAX_DEPTH // 2, MAX_DEPTH // 4, MAX_DEPTH // 8):
        try:
            text = json.dumps(_plain(obj, depth, set()), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except RecursionError:
            continue
        except Exception:
            break
        return text.encode("utf-8", "replace")
    return b"null"


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return str(key)
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float) and not math.isfinite(key):
        return "null"
    if isinstance(key, (datetime.datetime, datetime.date, datetime.time)):
        return key.isoformat()
    if isinstance(key, tuple):
        return dumps(key).decode()
    return str(key)


def _plain(obj: Any, levels: int, above: set[int]) -> Any:
    if obj is None or obj is True or obj is False:
        return obj
    if isinstance(obj, enum.Enum):
        obj = obj.value
    if isinstance(obj, str):
        return str(obj)
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, float):
        return float(obj) if math.isfinite(obj) else None
    if isinstance(obj, (datetime.datetime, datetime.date, datetime.time)):
        return obj.isoformat()
    if isinstance(obj, uuid.UUID):
        return str(obj)
    if isinstance(obj, orjson.Fragment):
        return json.loads(obj.contents)
    if levels < 0 or id(obj) in above:
        return None
    above.add(id(obj))
    try:
        # Loops, for a comprehension may take a frame of its own.
        if isinstance(obj, dict):
            out: Any = {}
            for k, v in obj.items():
                out[_key(k)] = _plain(v, levels - 1, above)
            return out
        if isinstance(obj, list) or type(obj) is tuple:
            out = []
            for v in obj:
                out.append(_plain(v, levels - 1, above))
            return out
        if dataclasses.is_dataclass(obj) and not isinstance(obj, (type, Send)):
            out = {}
            for f in dataclasses.fields(obj):
                if not f.name.startswith("_"):
                    out[f.name] = _plain(getattr(obj, f.name), levels - 1, above)
            return out
        if type(obj).__module__ == "numpy" and hasattr(obj, "tolist"):
            return _plain(obj.tolist(), levels - 1, above)
        return _plain(_default(obj), levels - 1, above)
    except RecursionError:
        raise
    except Exception:
        return None  # what cannot be read hides nothing beside it
    finally:
        above.discard(id(obj))


def loads(data: bytes) -> Any:
    """JSON in. Integers beyond 64 bits stay integers: orjson would make floats of them."""
    if _LONG_INT.search(data):
        return json.loads(data)
    return orjson.loads(data)


_LONG_INT = re.compile(rb"[:\[,\s-][0-9]{19}|^[0-9]{19}")
