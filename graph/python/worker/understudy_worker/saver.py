"""The checkpointer that graphs see: a thin client of the server's, which owns storage, transactions and fencing."""
from __future__ import annotations

import asyncio
import inspect
import math
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)

try:
    from langgraph.checkpoint.serde.types import _DeltaSnapshot
except ImportError:  # langgraph before delta channels

    class _DeltaSnapshot:  # type: ignore[no-redef]
        pass

from . import clock, deltas, jsonenc, unsaved
from .describe import Describer
from .wire import FrameTooLarge

# Of `configurable`, what does not go into the metadata of checkpoints. The ids come from the configuration's metadata.
_HIDDEN = {
    "langgraph_auth_user", "langgraph_auth_user_id", "langgraph_auth_permissions", "langgraph_request_id", "thread_id", "run_id",
    "checkpoint_ns", "checkpoint_id",
}

# How many bytes a run may be ahead of the storage when its graph emits nothing, which would make it wait earlier.
UNSAVED = 32 << 20

# The task path of the writes that apply an input. The server commits them with the checkpoint that has them, so nothing waits for them.
_START = unsaved.PULL + "__start__"

_I64 = 1 << 63
_U64 = 1 << 64


def inline(value: Any) -> bool:
    """Whether a channel's value stays inside the checkpoint's JSON: the primitives that JSON in Postgres keeps exactly."""
    kind = type(value)
    if value is None or kind is bool:
        return True
    if kind is str:
        if "\x00" in value:
            return False
        if value.isascii():
            return True
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    if kind is int:
        return -_I64 <= value < _U64
    return kind is float and math.isfinite(value)


def merged_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """As LangGraph Server has it: configurable, under the metadata of the configuration, under LangGraph's own."""
    out = {k: v for k, v in (config.get("configurable") or {}).items() if not k.startswith("__") and k not in _HIDDEN}
    out.update(config.get("metadata") or {})
    out.update(get_checkpoint_metadata(config, metadata))
    out.pop("writes", None)
    for k, v in out.items():
        if type(v) is str and "\x00" in v:
            out[k] = v.replace("\x00", "")
    return out


class Saver(BaseCheckpointSaver[str]):
    """Of one run or call. `ask(op, *args)` does a round trip to the server, `ask.tell` does not wait for the answer.

    LangGraph saves a checkpoint only after it was told that the one before is saved, so each would take a commit of its own. Unless
    `waits`, it is told so at once: the server does all in the order in which it is sent, a load too, what fails fails the run, and a run
    ends when all is committed.
    """

    def __init__(self, ask, serde, describer: Describer | None, loop: asyncio.AbstractEventLoop, waits: bool = True) -> None:
        super().__init__(serde=serde)
        self._ask = ask
        self._loop = loop
        self._waits = waits
        self._coming: dict[str, asyncio.Future] = {}  # checkpoints that are being described: their writes wait, to come after them
        self.describer = describer
        # Checkpoints that were there before: nothing waits for their commit.
        self.loaded: set[str] = set()
        # Values that loaded checkpoints hold in their JSON, by namespace, channel and version. Channels that this graph does not have keep their
        # versions in the checkpoints that it makes, and with the version goes the value: others are kept as blobs, these here only.
        self._inline: dict[tuple[str, str, Any], Any] = {}
        # (thread, namespace, id, row) of the checkpoint that the run starts from: good for one read, before anything is saved.
        self.head: tuple[str, str, str, list | None] | None = None

    # --- asynchronous ------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        conf = config["configurable"]
        at = (str(conf["thread_id"]), conf.get("checkpoint_ns") or "", conf.get("checkpoint_id") or "")
        head, self.head = self.head, None
        if head is not None and head[:3] == at:
            row = head[3]
        else:
            row = await self._ask("load", *at)
        return None if row is None else self._tuple(row)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        if limit is not None and limit <= 0:
            return
        conf = (config or {}).get("configurable") or {}
        rows = await self._ask(
            "list",
            str(conf.get("thread_id") or ""),
            conf.get("checkpoint_ns"),
            ((before or {}).get("configurable") or {}).get("checkpoint_id") or "",
            conf.get("checkpoint_id") or "",
            jsonenc.dumps(filter) if filter else None,
            limit or 0,
        )
        for row in rows:
            yield self._tuple(row)

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: dict[str, Any]
    ) -> RunnableConfig:
        self.head = None
        conf = config["configurable"]
        thread, ns, parent = str(conf["thread_id"]), conf.get("checkpoint_ns") or "", conf.get("checkpoint_id") or ""
        inside, blobs = {}, []
        for channel, value in checkpoint["channel_values"].items():
            if inline(value):
                inside[channel] = value
                continue
            if isinstance(value, _DeltaSnapshot):
                inside[channel] = True
            if (version := new_versions.get(channel)) is not None:
                blobs.append([channel, str(version), *self._dumps(channel, value)])
        if self._inline:
            for channel, version in checkpoint["channel_versions"].items():
                if channel not in checkpoint["channel_values"] and (held := (ns, channel, version)) in self._inline:
                    inside[channel] = self._inline[held]
        data = {**checkpoint, "channel_values": inside}
        meta = merged_metadata(config, metadata)
        tasks, shape, shape_json = None, "", None
        sent = self._coming[checkpoint["id"]] = self._loop.create_future()
        try:
            if self.describer is not None:
                tasks, shape, shape_json = await self.describer.describe(config, checkpoint, metadata, ns)
            put = ["put", thread, ns, checkpoint["id"], parent, _json(data), _json(meta), tasks, shape, shape_json, blobs]
            if not ns and (whole := deltas.folded(checkpoint["channel_values"])):
                put.append([
                    [channel, str(new_versions[channel]), *self._dumps(channel, value)] for channel, value in whole.items() if channel in new_versions
                ])
            try:
                if self._waits or shape_json is not None:
                    saved = self._ask.later(*put)
                else:
                    saved = self._ask.tell(*put)
            except FrameTooLarge as exc:
                unsaved.too_large(exc, ((blob[0], len(blob[3])) for blob in blobs))
                raise
        finally:
            self._coming.pop(checkpoint["id"], None)
            sent.set_result(None)
        if shape_json is not None:
            saved.add_done_callback(lambda done: self.describer.told(shape) if not done.cancelled() and done.exception() is None else None)
        if self._waits:
            await saved
        elif self._ask.unanswered > UNSAVED:
            await self._ask.flush()
        return {"configurable": {"thread_id": conf["thread_id"], "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}}

    def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""):
        # No coroutine function: the values are serialised now, for graphs share and change objects.
        self.head = None
        conf = config["configurable"]
        rows = []
        for i, (channel, value) in enumerate(writes):
            kind, data = self._dumps(channel, value, task_path)
            rows.append([task_id, WRITES_IDX_MAP.get(channel, i), channel, kind, data, task_path])
        return self._aput_rows(str(conf["thread_id"]), conf.get("checkpoint_ns") or "", conf["checkpoint_id"], rows)

    def _dumps(self, channel: str, value: Any, task_path: str = "") -> tuple[str, bytes]:
        try:
            return self.serde.dumps_typed(value)
        except Exception as exc:
            unsaved.explain(exc, self.serde.dumps_typed, channel, value, task_path)
            raise

    async def _aput_rows(self, thread: str, ns: str, checkpoint_id: str, rows: list) -> None:
        if coming := self._coming.get(checkpoint_id):
            await asyncio.shield(coming)
        try:
            if self._waits and not (rows and rows[0][5] == _START):
                await self._ask("writes", thread, ns, checkpoint_id, rows)
            else:
                self._ask.tell("writes", thread, ns, checkpoint_id, rows)
        except FrameTooLarge as exc:
            unsaved.too_large(exc, ((row[2], len(row[4])) for row in rows), rows[0][5])
            raise

    async def adelete_thread(self, thread_id: str) -> None:
        await self._ask("delete", str(thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._ask("copy", str(source_thread_id), str(target_thread_id))

    # --- from threads ------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._wait(self.aget_tuple(config))

    def list(self, config, *, filter=None, before=None, limit=None) -> Iterator[CheckpointTuple]:
        async def collect():
            return [t async for t in self.alist(config, filter=filter, before=before, limit=limit)]

        yield from self._wait(collect())

    def put(self, config, checkpoint, metadata, new_versions) -> RunnableConfig:
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(self, config, writes, task_id, task_path: str = "") -> None:
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._wait(self.adelete_thread(thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._wait(self.acopy_thread(source_thread_id, target_thread_id))

    def _wait(self, coro) -> Any:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            coro.close()
            raise asyncio.InvalidStateError(
                "Synchronous calls to the checkpointer are only allowed from a different thread. From the main thread, use the "
                "async interface. For example, use `await graph.ainvoke(...)` or `await checkpointer.aget_tuple(...)`."
            )
        return asyncio.run_coroutine_threadsafe(coro, self._loop).result()

    # --- rows --------------------------------------------------------------------------

    def _tuple(self, row: list) -> CheckpointTuple:
        thread, ns, ident, parent, data, metadata, blobs, writes = row
        self.loaded.add(ident)
        clock.after(ident)
        checkpoint = orjson.loads(data)
        values = checkpoint.get("channel_values") or {}
        versions = checkpoint.get("channel_versions") or {}
        for channel, value in values.items():
            if channel in versions:
                self._inline[ns, channel, versions[channel]] = value
        for channel, kind, held in blobs:
            if kind != "empty":
                values[channel] = self.serde.loads_typed((kind, held))
        checkpoint["channel_values"] = values
        writes.sort(key=_applied)
        return CheckpointTuple(
            {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": ident}},
            checkpoint,
            orjson.loads(metadata),
            {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": parent}} if parent else None,
            [(w[0], w[2], self.serde.loads_typed((w[3], w[4]))) for w in writes],
        )

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        if current is None:
            last = 0
        elif isinstance(current, (int, float)):
            last = int(current)
        else:
            last = int(current.split(".")[0])
        return f"{last + 1:032}.{random.random():016}"


# LangGraph looks at it for every run, and reading a signature is slow.
Saver.aput_writes.__signature__ = inspect.signature(Saver.aput_writes)


def _applied(row: list) -> tuple:
    """The order in which LangGraph applied the writes of a step: by path, task, index."""
    return row[5], row[0], row[1]


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=jsonenc._default, option=orjson.OPT_NON_STR_KEYS)
    except Exception:
        return jsonenc.dumps(value)
