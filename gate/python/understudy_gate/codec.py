"""JSON as the server sends and expects it: fast where orjson is there and loses nothing, else exact."""
from __future__ import annotations

import dataclasses
import datetime
import json
import re
import uuid
from typing import Any

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

# Numbers that orjson reads as floats although they are whole.
_LONG = re.compile(rb"\d{18}")


def loads(raw: bytes) -> Any:
    if orjson is not None and not _LONG.search(raw):
        try:
            return orjson.loads(raw)
        except ValueError:
            pass  # half of a surrogate pair, which JSON allows
    return json.loads(raw)


def dumps(value: Any) -> bytes:
    if orjson is not None:
        try:
            return orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS)
        except (TypeError, ValueError):
            pass  # long numbers, halves of surrogate pairs
    return json.dumps(value, default=plain, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def plain(value: Any) -> Any:
    """What JSON has for a value that it does not know. Raises TypeError for what cannot be meant."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, (uuid.UUID, datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat() if hasattr(value, "isoformat") else str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    for method in ("model_dump", "dict"):
        if callable(dump := getattr(value, method, None)) and not isinstance(value, type):
            return dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):
        return {k: value[k] for k in value.keys()}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
