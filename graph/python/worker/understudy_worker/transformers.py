"""Graphs compiled with transformers of their stream: what event streaming shows of a run passes through those first.

LangGraph runs transformers in its own event streams only, which have no modes and neither wait for checkpoints nor slow down. So the graph streams as for any run,
in the form of those streams, and a mux of the same parts stands between it and the shaper. Models then write their messages as events, which become chunks again:
the log of a thread has one form of messages, for all clients.
"""
from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from langchain_core.messages import AIMessageChunk, BaseMessage

from .jsonenc import dumps

try:
    from langgraph._internal._constants import CONFIG_KEY_STREAM_MESSAGES_V2
    from langgraph.stream._convert import convert_to_protocol_event
    from langgraph.stream._mux import StreamMux
    from langgraph.stream.transformers import LifecycleTransformer, MessagesTransformer, SubgraphTransformer, ValuesTransformer

    PARTS = (ValuesTransformer, MessagesTransformer, LifecycleTransformer, SubgraphTransformer)
except ImportError:  # a LangGraph without transformers, or one that has them elsewhere
    PARTS = ()

log = logging.getLogger(__name__)

# A mode of its own, for event streaming: what a transformer sends on a channel that has a name.
CHANNELS = "custom-channels"

# Transformers of libraries that change nothing a client sees: they collect objects for a caller in this process. What the last one does, `internal` does too.
PASSIVE = {"ToolCallTransformer", "SubagentTransformer", "InternalCallTransformer"}


def of(graph: Any) -> tuple[Callable, ...]:
    """The transformers that a graph has to run with; none when all it has are PASSIVE."""
    made = tuple(getattr(graph, "stream_transformers", None) or ())
    if all(_passive(t) for t in made):
        return ()
    if not PARTS:
        log.warning("the transformers that a graph was compiled with do not run: this version of langgraph has no stream_events(version=\"v3\") as the server knows it")
        return ()
    return made


def _passive(transformer: Any) -> bool:
    return getattr(transformer, "__name__", "") in PASSIVE and str(getattr(transformer, "__module__", "")).split(".")[0] in ("langgraph", "langchain")


def internal(metadata: dict) -> bool:
    """Whether a message is of a call that middleware of LangChain makes for itself, which event streams do not show."""
    if "lc_internal_call" not in metadata:
        return False
    known = sys.modules.get("langchain.agents.middleware.internal_call_transformer")
    return known is not None and metadata["lc_internal_call"] == known._INTERNAL_CALL_TOKEN


class Transformed:
    """The stream of one run. `item(ns, mode, data)` gets what is left of it, in the form of a stream without transformers; `channel(name, item)` what they send."""

    def __init__(self, transformers: tuple[Callable, ...], item: Callable[[tuple[str, ...], str, Any], None], channel: Callable[[str, Any], None]) -> None:
        self._item = item
        self._channel = channel
        self._speaking: dict[tuple[str, ...], Spoken] = {}
        self._mux = StreamMux(factories=[*PARTS, *transformers], is_async=True)
        self._mux._events._wire(self._receive)
        self.modes: set[str] = {mode for t in self._mux._transformers for mode in t.required_stream_modes}
        self._shown: set[str] = set()

    def arguments(self, config: dict, kwargs: dict, shown: list[str]) -> None:
        """Sets what the graph has to be called with. Modes that only transformers need are not shown."""
        self._shown = set(shown)
        config["configurable"][CONFIG_KEY_STREAM_MESSAGES_V2] = True
        kwargs["version"] = "v2"
        kwargs["stream_mode"] = sorted(self._shown | self.modes)
        kwargs["subgraphs"] = True

    async def run(self, stream: AsyncIterator, rest: Callable[[], Any]) -> None:
        """Passes a stream through. `rest` gives what has to be awaited after a part, or None."""
        try:
            async for part in stream:
                event = convert_to_protocol_event(part)
                await self._mux.apush(event)
                if event["method"] == "tasks" and "tasks" in self._shown:  # parts of the mux take them; the server makes the same of them itself
                    self._item(tuple(event["params"]["namespace"]), "tasks", event["params"]["data"])
                if (wait := rest()) is not None:
                    await wait
            await self._mux.aclose()
        except BaseException as exc:
            await self._mux.afail(exc)
            raise

    def _receive(self, event: dict) -> None:
        method, params = event["method"], event["params"]
        if method.startswith("custom:"):
            self._channel(method[len("custom:"):], params["data"])
            return
        if method not in self._shown or method == "tasks":
            return
        ns, data = tuple(params["namespace"]), params["data"]
        if method == "messages":
            self._message(ns, *data)
            return
        if method == "values" and params.get("interrupts"):
            if not isinstance(data, dict):
                data = orjson.loads(dumps(data))
            data = {**data, "__interrupt__": params["interrupts"]}
        self._item(ns, method, data)

    def _message(self, ns: tuple[str, ...], payload: Any, metadata: dict) -> None:
        if isinstance(payload, BaseMessage):
            self._item(ns, "messages", (payload, metadata))
            return
        call = (*ns, str(metadata.get("run_id")))
        if payload["event"] == "message-start":
            if payload.get("role") == "tool":
                return
            self._speaking[call] = Spoken(payload.get("id") or payload.get("message_id"), {k: v for k, v in metadata.items() if k != "run_id"})
        spoken = self._speaking.get(call)
        if spoken is None:
            return
        if payload["event"] == "message-finish":
            del self._speaking[call]
        if (chunk := spoken.chunk(payload)) is not None:
            self._item(ns, "messages", (chunk, spoken.metadata))


# Of types of content whose text grows: the field that does.
GROWING = {"text": "text", "reasoning": "reasoning", "tool_call_chunk": "args", "server_tool_call_chunk": "args"}
DELTAS = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "args"}


@dataclass
class Block:
    kind: str
    grown: str = ""


@dataclass
class Spoken:
    """A message that a model writes, from its events."""

    id: str | None
    metadata: dict
    about_model: dict = field(default_factory=dict)  # response metadata that its start had
    blocks: dict[int, Block] = field(default_factory=dict)

    def chunk(self, event: dict) -> AIMessageChunk | None:
        """What an event adds; None: nothing."""
        match event["event"]:
            case "message-start":
                about = event.get("metadata") or {}
                self.about_model = {k: about[v] for k, v in (("model_provider", "provider"), ("model_name", "model")) if about.get(v)}
                return self._made(response_metadata=dict(self.about_model))
            case "content-block-start":
                return self._start(event["index"], event["content"])
            case "content-block-delta":
                delta = event["delta"]
                block = self.blocks.get(event["index"])
                if block is None or (key := DELTAS.get(delta.get("type"))) is None or GROWING.get(block.kind) != key:
                    return None  # its end has it
                return self._grow(event["index"], block, delta.get(key) or "")
            case "content-block-finish":
                return self._finish(event["index"], event["content"])
            case "message-finish":
                return self._made(
                    usage_metadata=_usage(event.get("usage")),
                    response_metadata={k: v for k, v in (event.get("metadata") or {}).items() if self.about_model.get(k) != v},
                    additional_kwargs=dict(event.get("additional_kwargs") or {}),
                    chunk_position="last",
                )
        return None

    def _made(self, content: Any = "", **fields: Any) -> AIMessageChunk:
        return AIMessageChunk(content=content, id=self.id, **fields)

    def _start(self, index: int, content: dict) -> AIMessageChunk | None:
        kind = content.get("type", "text")
        block = self.blocks[index] = Block(kind)
        key = GROWING.get(kind)
        if key is None:
            return None  # its end has all of it
        first = block.grown = content.get(key) or ""
        if kind == "tool_call_chunk":
            return self._call(index, first, content.get("id"), content.get("name"))
        more = {k: v for k, v in content.items() if k not in ("type", "index", key)}
        return self._text(index, block, first, more) if first or more or kind != "text" else None

    def _grow(self, index: int, block: Block, more: str) -> AIMessageChunk | None:
        if not more:
            return None
        block.grown += more
        if block.kind == "tool_call_chunk":
            return self._call(index, more)
        return self._text(index, block, more)

    def _text(self, index: int, block: Block, words: str, more: dict | None = None) -> AIMessageChunk:
        """Words of a block. Those of a text that comes first need no index, as most providers have none for it."""
        if index > 0 or block.kind != "text":
            return self._made([{"type": block.kind, GROWING[block.kind]: words, "index": index, **(more or {})}])
        return self._made([{"type": "text", "text": words, **more}] if more else words)

    def _call(self, index: int, args: str, ident: str | None = None, name: str | None = None) -> AIMessageChunk:
        return self._made(tool_call_chunks=[{"type": "tool_call_chunk", "name": name, "args": args, "id": ident, "index": index}])

    def _finish(self, index: int, content: dict) -> AIMessageChunk | None:
        """What was not streamed. Of a text that was streamed otherwise than it ends, readers have what was streamed."""
        kind = content.get("type", "text")
        block = self.blocks.setdefault(index, Block(kind))
        key = GROWING.get(block.kind)
        if block.kind == "tool_call_chunk":
            return self._call(index, _json(content.get("args"))) if not block.grown and content.get("args") else None
        if kind == "tool_call":
            return self._call(index, _json(content.get("args")), content.get("id"), content.get("name"))
        if key is None:
            return self._made([{**content, "index": index}])
        if block.kind == "server_tool_call_chunk":
            rest = "" if block.grown else _json(content.get("args"))
            return self._text(index, block, rest) if rest else None
        whole = content.get(key) or ""
        rest = whole[len(block.grown):] if whole.startswith(block.grown) else ""
        more = {k: v for k, v in content.items() if k not in ("type", "index", key)}
        return self._text(index, block, rest, more) if rest or more else None


def _json(args: Any) -> str:
    return args if isinstance(args, str) else dumps(args or {}).decode()


def _usage(usage: dict | None) -> dict | None:
    if not usage:
        return None
    counted = {"input_tokens": 0, "output_tokens": 0, **usage}
    return {"total_tokens": counted["input_tokens"] + counted["output_tokens"], **counted}
