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
# How many levels of lists and objects are shown, as in Go (jsonplus.ShownDepth).
MAX_DEPTH = 920

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
    try:
        return _text(obj).encode("utf-8", "replace")
    except Exception:
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


def _scalar(obj: Any) -> str | None:
    """The JSON of what holds nothing; None for anything else."""
    if isinstance(obj, enum.Enum):
        return _scalar(obj.value)
    if isinstance(obj, orjson.Fragment):
        return bytes(obj.contents).decode()
    if isinstance(obj, (datetime.datetime, datetime.date, datetime.time)):
        obj = obj.isoformat()
    elif isinstance(obj, uuid.UUID):
        obj = str(obj)
    if isinstance(obj, str):
        return json.dumps(str(obj), ensure_ascii=False)
    if obj is None or obj is True or obj is False:
        return json.dumps(obj)
    if isinstance(obj, int):
        return str(int(obj))
    if isinstance(obj, float):
        return repr(float(obj)) if math.isfinite(obj) else "null"
    return None


def _parts(obj: Any) -> dict[str, Any] | list[Any] | None:
    """What a container holds; None for other objects."""
    if isinstance(obj, enum.Enum):
        return _parts(obj.value)
    if isinstance(obj, dict):
        return {_key(k): v for k, v in obj.items()}
    if isinstance(obj, list) or type(obj) is tuple:
        return list(obj)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, (type, Send)):
        return {f.name: getattr(obj, f.name) for f in dataclasses.fields(obj) if not f.name.startswith("_")}
    if type(obj).__module__ == "numpy" and hasattr(obj, "tolist"):
        return _parts(obj.tolist())
    return None


# How many objects stand for each other before one is plain.
_STEPS = 20


def _text(obj: Any) -> str:
    """Step by step, without recursion: graphs call from any depth of Python's stack. What cannot be shown, is nested too deeply or contains itself is null,
    and hides nothing next to it."""
    out: list[str] = []
    above: set[int] = set()
    # Open containers: what closes them, their elements that are left, and the objects that stand for them.
    opened: list[tuple[str, Any, list[int], list[Any]]] = []

    def put(value: Any) -> None:
        chain: list[Any] = []
        try:
            for _ in range(_STEPS):
                text = _scalar(value)
                if text is not None:
                    out.append(text)
                    return
                if id(value) in above:
                    break
                chain.append(value)
                parts = _parts(value)
                if parts is None and type(value).__module__ == "numpy" and hasattr(value, "tolist"):
                    value = value.tolist()
                    continue
                if parts is None:
                    value = _default(value)
                    continue
                if len(opened) >= MAX_DEPTH:
                    break
                ids = [id(o) for o in chain]
                above.update(ids)
                # Objects that were made on the way are kept: another one could get the id of one that is gone.
                if isinstance(parts, dict):
                    out.append("{")
                    opened.append(("}", iter(parts.items()), ids, chain))
                else:
                    out.append("[")
                    opened.append(("]", iter(parts), ids, chain))
                return
        except Exception:
            pass
        out.append("null")

    put(obj)
    while opened:
        close, left, ids, _ = opened[-1]
        try:
            element = next(left)
        except StopIteration:
            out.append(close)
            opened.pop()
            above.difference_update(ids)
            continue
        if out[-1] not in ("{", "["):
            out.append(",")
        if close == "}":
            out.append(json.dumps(element[0], ensure_ascii=False))
            out.append(":")
            element = element[1]
        put(element)
    return "".join(out)


def loads(data: bytes) -> Any:
    """JSON in. Integers beyond 64 bits stay integers: orjson would make floats of them."""
    if _LONG_INT.search(data):
        return json.loads(data)
    return orjson.loads(data)


_LONG_INT = re.compile(rb"[:\[,\s-][0-9]{19}|^[0-9]{19}")
