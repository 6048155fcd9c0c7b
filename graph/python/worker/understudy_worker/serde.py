"""The serialiser of checkpoints: LangGraph's, told what langgraph.json says, and made to keep integers beyond 64 bits."""
from __future__ import annotations

import types
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer


def _big_enc():
    """LangGraph's encoder with one more case. None when its parts are not where they were."""
    try:
        option = jsonplus._option | ormsgpack.OPT_PASSTHROUGH_BIG_INT
        inner = jsonplus._msgpack_default
        scope = {**inner.__globals__}
        default = types.FunctionType(inner.__code__, scope, inner.__name__, inner.__defaults__, inner.__closure__)
    except AttributeError:
        return None

    def with_big(obj: Any) -> Any:
        if isinstance(obj, int):
            # Read back by JsonPlusSerializer as int("..."): any other reader of the store gets the same number.
            return ormsgpack.Ext(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, ormsgpack.packb(("builtins", "int", str(obj))))
        return default(obj)

    def enc(data: Any) -> bytes:
        return ormsgpack.packb(data, default=with_big, option=option)

    scope["_msgpack_enc"] = enc
    return enc


class Serializer(JsonPlusSerializer):
    """Tries msgpack with big integers before it falls back to pickle."""

    _enc_big = staticmethod(_big_enc())

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        try:
            out = super().dumps_typed(obj)
            if out[0] != "pickle":
                return out
        except Exception as exc:
            out = exc
        if self._enc_big is not None:
            try:
                return "msgpack", self._enc_big(obj)
            except ormsgpack.MsgpackEncodeError:
                pass
        if isinstance(out, Exception):
            raise out
        return out


def _modules(given: Any) -> Any:
    if given is None or isinstance(given, bool):
        return given or None
    return [tuple(m.split(".")) if isinstance(m, str) else tuple(m) for m in given]


def make(options: dict | None) -> JsonPlusSerializer:
    """The `checkpointer.serde` section of a langgraph.json. Pickle is the fallback unless it says no, as LangGraph Server has it."""
    options = options or {}
    kwargs: dict[str, Any] = {"pickle_fallback": options.get("pickle_fallback", True) is not False}
    if options.get("allowed_json_modules") is not None:
        kwargs["allowed_json_modules"] = _modules(options["allowed_json_modules"])
    if options.get("allowed_msgpack_modules") is not None:
        kwargs["allowed_msgpack_modules"] = _modules(options["allowed_msgpack_modules"])
    return Serializer(**kwargs)
