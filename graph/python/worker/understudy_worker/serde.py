"""The serialiser of checkpoints: LangGraph's, set up as langgraph.json says, and made to keep as msgpack what LangGraph would pickle whole.

LangGraph pickles a channel's whole value when anything in it is unknown to msgpack, and only a graph reads a pickle: one tool
that returns an object of its own would hide its conversation. Here only that object is pickled, within the msgpack, in forms that LangGraph's
own JsonPlusSerializer reads back:

- an integer beyond 64 bits is the call int("…");
- a container that is nested too deeply for one msgpack value is the call dict({…}) or list([…]), which holds a msgpack value of its own;
- anything else is the call pickle.loads(b"…"), with its JSON behind the argument, for those who show it.
"""
from __future__ import annotations

import pickle
import types
from collections.abc import Callable
from enum import Enum
from typing import Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from . import jsonenc

# How many levels of plain containers one msgpack value gets. ormsgpack writes 255.
LEVELS = 200

_PLAIN = frozenset((str, int, float, bool, type(None), bytes, bytearray, memoryview, ormsgpack.Ext))


class _Cycle(Exception):
    """A value contains itself. `at` is the id of the container that was met again."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at


class _Inside(Exception):
    """What an object holds cannot be encoded; a TypeError says that the object itself cannot."""


class _Unkept(Exception):
    """Nothing can hold a value; the cause says why."""


def _calls(enc: Callable[[Any], bytes]) -> Callable[[Any], Any]:
    """LangGraph's function that encodes objects, with another one for what they hold."""
    inner = jsonplus._msgpack_default
    return types.FunctionType(inner.__code__, {**inner.__globals__, "_msgpack_enc": enc}, inner.__name__, inner.__defaults__, inner.__closure__)


class _Encoder:
    """Encodes in one pass what is neither too deep nor has keys that msgpack has no form for, and leaves the rest to _Careful."""

    def __init__(self, pickles: bool) -> None:
        self.pickles = pickles
        self.option = jsonplus._option | ormsgpack.OPT_PASSTHROUGH_BIG_INT
        self._object = _calls(self._inside)

    def enc(self, data: Any) -> bytes:
        return ormsgpack.packb(data, default=self.default, option=self.option)

    def _inside(self, data: Any) -> bytes:
        try:
            return ormsgpack.packb(data, default=self.default, option=self.option)
        except ormsgpack.MsgpackEncodeError as exc:
            raise _Inside from exc

    def default(self, obj: Any) -> Any:
        if isinstance(obj, int) and not isinstance(obj, Enum):
            return self.call("builtins", "int", str(int(obj)))
        try:
            return self._object(obj)
        except TypeError:
            if isinstance(obj, BaseMessage):
                raise
            return self.leaf(obj)

    def call(self, *call: Any) -> ormsgpack.Ext:
        return ormsgpack.Ext(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, ormsgpack.packb(call, default=self.default, option=self.option))

    def leaf(self, obj: Any) -> ormsgpack.Ext:
        if not self.pickles:
            raise _Unkept from TypeError(f"Type is not msgpack serializable: {type(obj).__name__}")
        try:
            data = pickle.dumps(obj)
        except Exception as exc:
            raise _Unkept from exc
        return self.call("pickle", "loads", data, jsonenc.dumps(obj))


class _Careful:
    """Encodes one value step by step. Beside what _Encoder does, containers that are too deep get msgpack values of their own, and the
    smallest container is pickled that contains itself or has a key that msgpack has no form for."""

    def __init__(self, plain: _Encoder) -> None:
        self._encoder = plain
        self._object = _calls(self._enc)
        self._above: set[int] = set()
        self._level = 0

    def whole(self, value: Any) -> bytes:
        if type(value) is not list:
            return self._encoder.enc(self._part(value))
        # Mostly one of many messages is the reason.
        self._above.add(id(value))
        self._level = 1
        try:
            return self._encoder.enc([self._item(v) for v in value])
        except _Cycle:
            return self._encoder.enc(self._encoder.leaf(value))

    def _item(self, value: Any) -> Any:
        try:
            self._encoder.enc([value])
        except (_Unkept, ormsgpack.MsgpackEncodeError, RecursionError):
            return self._part(value)
        return value

    def _enc(self, data: Any) -> bytes:
        level, self._level = self._level, 0
        try:
            return self._encoder.enc(self._part(data))
        finally:
            self._level = level

    def _part(self, obj: Any) -> Any:
        """The same as msgpack can hold it. One frame for each level: Python has a thousand."""
        kind = type(obj)
        if kind in _PLAIN:
            return obj
        here = id(obj)
        if here in self._above:
            raise _Cycle(here)
        self._above.add(here)
        self._level += 1
        try:
            if isinstance(obj, dict):
                out: Any = {}
                for key, value in obj.items():
                    if type(key) is not str or not key.isascii():
                        ormsgpack.packb({key: None}, option=self._encoder.option)
                    out[key] = self._part(value)
                return out if self._level % LEVELS else self._encoder.call("builtins", "dict", out)
            if isinstance(obj, list) or kind is tuple:
                out = []
                for value in obj:
                    out.append(self._part(value))
                return out if self._level % LEVELS else self._encoder.call("builtins", "list", out)
            if isinstance(obj, BaseMessage):
                # Not by its model_dump: that copies what is nested in it, where it can.
                fields = jsonenc.message_fields(obj)
                call = (kind.__module__, kind.__name__, fields, "model_validate_json")
                return ormsgpack.Ext(jsonplus.EXT_PYDANTIC_V2, self._enc(call))
            if isinstance(obj, (str, int, float)) and not isinstance(obj, Enum):
                self._encoder.enc(obj)
                return obj
            return self._object(obj)
        except _Cycle as cycle:
            if cycle.at != here:
                raise
        except (_Unkept, RecursionError):
            raise
        except Exception:
            pass  # not to be had by its parts
        finally:
            self._above.discard(here)
            self._level -= 1
        return self._encoder.leaf(obj)


# What is called to read back what is encoded here.
_CALLED = {("builtins", "int"), ("builtins", "dict"), ("builtins", "list")}


class Serializer(JsonPlusSerializer):
    """JsonPlusSerializer that pickles, if it may, no more than it has to."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        called = _CALLED | {("pickle", "loads")} if self.pickle_fallback else _CALLED
        try:
            if self._allowed_msgpack_modules is not True:
                self._allowed_msgpack_modules = called | (self._allowed_msgpack_modules or set())
                self._unpack_ext_hook = jsonplus._create_msgpack_ext_hook(self._allowed_msgpack_modules)
            # Otherwise it would warn of them.
            jsonplus._warned_unregistered_types.update(called)
        except AttributeError:
            pass  # a langgraph-checkpoint that has no list of what it may call
        try:
            self._encoder = _Encoder(self.pickle_fallback)
        except AttributeError:
            self._encoder = None  # one whose parts are elsewhere

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if self._encoder is None or obj is None or isinstance(obj, (bytes, bytearray)):
            return super().dumps_typed(obj)
        try:
            return "msgpack", self._encoder.enc(obj)
        except (_Unkept, ormsgpack.MsgpackEncodeError, RecursionError):
            pass
        try:
            return "msgpack", _Careful(self._encoder).whole(obj)
        except _Unkept as exc:
            raise exc.__cause__ from None


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
