"""Writes corpus.json: values as JsonPlusSerializer stores them, and the JSON that clients see.

    pip install langgraph langchain-core numpy
    python gen.py
"""
from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import re
from collections import deque, namedtuple
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy
import orjson
import pydantic
import pydantic.v1
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage, AIMessageChunk, ChatMessage, ChatMessageChunk, FunctionMessage, FunctionMessageChunk, HumanMessage, HumanMessageChunk,
    RemoveMessage, SystemMessage, SystemMessageChunk, ToolMessage, ToolMessageChunk)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, Send


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(pydantic.BaseModel):
    x: int
    y: float = 0.5


class Shape(pydantic.BaseModel):
    points: list[Point]
    colour: Colour = Colour.RED
    made: datetime = datetime(2024, 1, 2)
    extra: dict[str, Any] = {}


class Old(pydantic.v1.BaseModel):
    a: int
    b: list[str] = ["x"]


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any


Named = namedtuple("Named", "left right")


def shown(v):
    """What orjson is given for a value that it does not know."""
    if isinstance(v, _DeltaSnapshot):
        return v.value
    if isinstance(v, pydantic.SecretStr | pydantic.SecretBytes):
        return None
    if hasattr(v, "model_dump"):
        return v.model_dump()
    if isinstance(v, pydantic.v1.BaseModel):
        return v.dict()
    if hasattr(v, "_asdict"):
        return v._asdict()
    if isinstance(v, Send):
        return {"node": v.node, "args": v.arg}
    if isinstance(v, Item):
        return v.dict()
    if isinstance(v, set | frozenset | deque):
        return list(v)
    if isinstance(v, timedelta):
        return v.total_seconds()
    if isinstance(v, Decimal):
        if not v.is_finite():
            return None
        return int(v) if v.as_tuple().exponent >= 0 else float(v)
    if isinstance(v, bytes | bytearray):
        return base64.b64encode(v).decode()
    if isinstance(v, re.Pattern):
        return v.pattern
    if isinstance(v, BaseException):
        return repr(v)
    if isinstance(v, numpy.ndarray):
        return v.tolist()
    if dataclasses.is_dataclass(v):
        return {f.name: getattr(v, f.name) for f in dataclasses.fields(v)}
    if isinstance(v, pathlib.PurePath) or type(v).__module__ in ("ipaddress", "zoneinfo") or isinstance(v, timezone):
        return str(v)
    raise TypeError(type(v))


def clean(v):
    """Text that JSON cannot carry, and what orjson would write in its own way."""
    if isinstance(v, str) and not isinstance(v, Enum):
        return "".join("\ufffd" if c == "\0" else "?" if 0xD800 <= ord(c) < 0xE000 else c for c in v)
    if type(v) in (list, tuple):
        return [clean(x) for x in v]
    if type(v) is dict:
        return {clean(k): clean(x) for k, x in v.items()}
    if isinstance(v, Enum):
        return clean(v.value)
    if v is None or isinstance(v, bool | int | float | UUID | datetime | date):
        return v
    if isinstance(v, time):
        return v.isoformat()
    return clean(shown(v))


def expected(v) -> str:
    v = clean(v)
    try:
        return orjson.dumps(v, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # integers of more than 64 bits
        return json.dumps(v, separators=(",", ":"), ensure_ascii=False)


calls = [{"name": "search", "args": {"q": "x", "n": 1.0}, "id": "call_1", "type": "tool_call"}]
usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"cache_read": 1}}
blocks = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "plain"]
chunk = AIMessageChunk("par", id="c1", tool_call_chunks=[{"name": "search", "args": '{"q":', "id": "call_1", "index": 0, "type": "tool_call_chunk"}])

values: dict[str, Any] = {
    "none": None, "true": True, "false": False, "zero": 0, "int": 7, "negative": -129, "int_32": 2**31, "int_min": -2**63, "int_max": 2**63 - 1,
    "uint_max": 2**64 - 1, "big_int": 2**53 + 1, "float": 1.5, "float_whole": 1.0, "float_minus_zero": -0.0, "float_large": 1.5e300, "float_1e16": 1e16,
    "float_1e15": 1e15, "float_small": 1e-7, "float_1e-5": 1e-5, "float_least": 5e-324, "nan": float("nan"), "inf": [float("inf"), float("-inf")],
    "text": "héllo ☃ \U0001f600 \u2028", "text_empty": "", "text_escapes": "\x01\b\t\n\f\r\x1f\x7f\"\\/<>&", "nul": "a\0b", "lone_surrogate": "a\ud800b\udfff",
    "text_long": "plain ascii text without anything special in it, " * 20 + '"', "text_32": "ü" * 400,
    "bytes": b"\x00\xffhi", "bytearray": bytearray(b"abc"), "bytes_inside": [b"", b"\x00", bytearray(b"x")],
    "list": [1, [2, [3, []]], {}], "tuple": (1, "two"), "list_long": list(range(300)), "dict": {"a": {"b": [None]}, "": 1}, "dict_long": {str(i): i for i in range(20)},
    "keys": {1: "one", -2: "two", None: 0, 2.5: 3, True: 4}, "keys_uuid": {UUID(int=5): 1}, "keys_tuple": {"x": 1}, "keys_date": {date(2024, 1, 2): 1},
    "datetime": datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc), "naive_datetime": datetime(2024, 1, 2, 3, 4, 5),
    "date": date(2024, 1, 2), "date_early": date(1, 1, 1), "time": time(3, 4, 5), "time_micros": time(23, 59, 59, 7),
    "time_utc": time(3, 4, 5, tzinfo=timezone.utc), "time_offset": time(3, 4, 5, 60, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    "time_zone": time(3, 4, 5, tzinfo=ZoneInfo("Europe/Berlin")),
    "timedelta": timedelta(minutes=1, milliseconds=500), "timedelta_negative": timedelta(seconds=-1, microseconds=-1), "timedelta_days": timedelta(days=900),
    "timezone": [timezone.utc, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-1)), timezone(timedelta(hours=1), "CET"), timezone(timedelta(seconds=30))],
    "zoneinfo": ZoneInfo("Europe/Berlin"), "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "decimal_int": Decimal("12"), "decimal_frac": Decimal("1.50"), "decimals": [Decimal(x) for x in ("0", "-0", "-12", "1E+3", "-1.5E+2", "1.0", "0.000", "1E-7", "NaN", "Infinity", "-Infinity", "00012")],
    "decimal_long": Decimal("123456789012345678901234567890"),
    "set": {7}, "frozenset": frozenset([8]), "deque": deque([1, 2]), "set_empty": set(), "enum": Colour.RED, "enums": [Colour.RED, Level.HIGH],
    "path": pathlib.Path("a/b"), "paths": [pathlib.Path(x) for x in ("/", "/a/b", "a", ".", "../x y")],
    "pattern": [re.compile("a+\\d"), re.compile(b"ab")], "addresses": [ip_address("10.0.0.1"), ip_network("10.0.0.0/8"), ip_interface("10.0.0.1/8"), ip_address("::1")],
    "secret": [pydantic.SecretStr("hush"), pydantic.SecretBytes(b"hush"), pydantic.SecretStr("")],
    "exception": ValueError("boom"), "exception_inside": {"e": KeyError("k")},
    "pydantic": Point(x=1), "pydantic_nested": Shape(points=[Point(x=1), Point(x=2, y=3)], extra={"at": date(2024, 1, 2), "s": {1}}), "pydantic_v1": Old(a=1),
    "dataclass": Pair(1, "x"), "dataclass_nested": Pair([Pair(1, Colour.RED)], {"t": timedelta(seconds=2)}), "namedtuple": Named(1, [2]),
    "send": Send("somewhere", {"k": 1}), "sends": [Send("a", HumanMessage("x", id="1")), Send("b", Pair(1, 2))],
    "interrupt": [Interrupt(value={"q": "?"}, id="0" * 32)], "overwrite": Overwrite([1]), "command": Command(update={"a": 1}, goto="b"),
    "item": Item(value={"v": 1}, key="k", namespace=("a", "b"), created_at=datetime(2024, 1, 2), updated_at=datetime(2024, 1, 3)),
    "delta": _DeltaSnapshot([HumanMessage("x", id="1"), 2]), "nested": {"deep": [{"at": date(2024, 5, 6)}]},
    "human": HumanMessage("hi", id="m1"), "human_named": HumanMessage("hi", name="bob"), "human_blocks": HumanMessage(blocks, id="m2"),
    "human_extra": HumanMessage("hi", additional_kwargs={"lc_source": "summarization", "at": date(2024, 1, 2)}, response_metadata={"n": float("nan")}, example=True),
    "ai": AIMessage("yes", id="a1"), "ai_full": AIMessage("", id="a2", name="agent", tool_calls=calls, usage_metadata=usage, response_metadata={"model_name": "m", "finish_reason": "stop"},
                                                         invalid_tool_calls=[{"name": "bad", "args": "{", "id": "i", "error": "no", "type": "invalid_tool_call"}]),
    "ai_blocks": AIMessage([{"type": "text", "text": "t"}, {"type": "tool_use", "id": "call_1", "name": "search", "input": {"q": 1}}], tool_calls=calls),
    "system": SystemMessage("be kind", id="s1"), "tool": ToolMessage("found", tool_call_id="call_1", id="t1", name="search"),
    "tool_full": ToolMessage([{"type": "text", "text": "found"}], tool_call_id="call_1", artifact={"raw": Pair(1, [b"x"])}, status="error"),
    "remove": RemoveMessage(id="m1"), "remove_all": RemoveMessage(id="__remove_all__"), "chat": ChatMessage("hi", role="critic"), "function": FunctionMessage("r", name="f"),
    "ai_chunk": chunk, "ai_chunk_last": AIMessageChunk("", id="c1", chunk_position="last", usage_metadata=usage), "human_chunk": HumanMessageChunk("h"),
    "system_chunk": SystemMessageChunk("s"), "tool_chunk": ToolMessageChunk("t", tool_call_id="c"), "chat_chunk": ChatMessageChunk("c", role="r"), "function_chunk": FunctionMessageChunk("f", name="n"),
    "conversation": [HumanMessage("hi", id="1"), AIMessage("", id="2", tool_calls=calls), ToolMessage("found", tool_call_id="call_1", id="3"), AIMessage("done", id="4")],
    "document": Document("text", metadata={"source": pathlib.Path("a/b"), "n": 1}, id="d"), "documents": {"docs": [Document("a"), Document("b")]},
    "numpy": numpy.array([[1, 2], [3, 4]]), "numpy_kinds": [numpy.array(x, dtype=t) for x, t in (
        ([1.5, float("nan")], "f8"), ([1.5, 2], "f4"), ([0.5, 65504, 6e-8], "f2"), ([-1, 2], "i1"), ([-1, 2], ">i4"), ([1, 255], "u1"), ([True, False], "?"), (["a", "bü"], "U3"), ([2**63], "u8"))],
    "numpy_fortran": numpy.asfortranarray(numpy.arange(24).reshape(2, 3, 4)), "numpy_scalar": numpy.array(5), "numpy_empty": numpy.zeros((2, 0, 3)),
}

# The older form. What a reader of today makes of it is the expected value.
old_json = {
    "json_plain": '{"a": [1, 2.0, null, true, "\\u00e9\\ud83d\\ude00"], "nan": NaN, "inf": [Infinity, -Infinity]}',
    "json_escapes": '"\\u0000 \\ud800 \\n \\/ \\""',
    "json_uuid": {"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "args": ["12345678123456781234567812345678"]},
    "json_set": {"lc": 2, "type": "constructor", "id": ["builtins", "set"], "args": [[7]]},
    "json_deque": {"lc": 2, "type": "constructor", "id": ["collections", "deque"], "args": [[7, 8]]},
    "json_path": {"lc": 2, "type": "constructor", "id": ["pathlib", "PosixPath"], "args": ["/", "a", "b"]},
    "json_path_one": {"lc": 2, "type": "constructor", "id": ["pathlib", "PosixPath"], "args": ["a"]},
    "json_pattern": {"lc": 2, "type": "constructor", "id": ["re", "compile"], "args": ["a+", 32]},
    "json_timedelta": {"lc": 2, "type": "constructor", "id": ["datetime", "timedelta"], "args": [0, 60, 500000]},
    "json_date": {"lc": 2, "type": "constructor", "id": ["datetime", "date"], "args": [2024, 1, 2]},
    "json_time": {"lc": 2, "type": "constructor", "id": ["datetime", "time"], "kwargs": {"hour": 3, "minute": 4, "second": 5, "microsecond": 0, "tzinfo": None, "fold": 0}},
    "json_decimal": {"lc": 2, "type": "constructor", "id": ["decimal", "Decimal"], "args": ["1.50"]},
    "json_address": {"lc": 2, "type": "constructor", "id": ["ipaddress", "IPv4Address"], "args": ["10.0.0.1"]},
    "json_send": {"lc": 2, "type": "constructor", "id": ["langgraph", "types", "Send"], "kwargs": {"node": "a", "arg": {"k": 1}}},
    "json_dataclass": {"lc": 2, "type": "constructor", "id": ["__main__", "Pair"], "kwargs": {"a": 1, "b": [2]}},
    "json_enum": {"lc": 2, "type": "constructor", "id": ["__main__", "Colour"], "args": ["red"]},
    "json_human": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "hi", "type": "human", "id": "m1"}},
    "json_ai": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "", "type": "ai", "id": "a1", "tool_calls": calls, "usage_metadata": usage, "invalid_tool_calls": []}},
    "json_tool": [{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"], "kwargs": {"content": "f", "tool_call_id": "c", "type": "tool", "name": "n", "id": "t", "status": "error"}}],
    "json_lookalike": {"lc": 3, "type": "constructor", "id": ["a"]},
}


def main() -> None:
    serde = JsonPlusSerializer(allowed_json_modules=True, allowed_msgpack_modules=True)
    rows = []
    for name, value in values.items():
        kind, data = serde.dumps_typed(value)
        rows.append({"name": name, "type": kind, "data": base64.b64encode(data).decode(), "json": expected(value)})
    for name, text in old_json.items():
        data = (text if isinstance(text, str) else json.dumps(text)).encode()
        value = serde.loads_typed(("json", data))
        rows.append({"name": name, "type": "json", "data": base64.b64encode(data).decode(), "json": expected(value)})
    out = pathlib.Path(__file__).with_name("corpus.json")
    out.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
