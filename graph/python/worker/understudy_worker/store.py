"""The store that graphs see: batches of operations, done by the server."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp

from . import jsonenc


class Store(BaseStore):
    supports_ttl = True
    # What a call does not say is left to the server, which knows the configuration.
    ttl_config = {"default_ttl": 0, "refresh_on_read": None}

    __slots__ = ("_ask", "_loop")

    def __init__(self, ask, loop: asyncio.AbstractEventLoop) -> None:
        self._ask = ask
        self._loop = loop

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        if not ops:
            return []
        rows = await self._ask("store", [_row(op) for op in ops])
        return [_result(op, row) for op, row in zip(ops, rows)]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            raise asyncio.InvalidStateError(
                "Synchronous calls to the store detected in the main event loop. This can lead to deadlocks or performance issues. "
                "Please use the asynchronous interface for main thread operations: replace `store.get(...)` with "
                "`await store.aget(...)`, and so on."
            )
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()


def _row(op: Op) -> list:
    if isinstance(op, GetOp):
        return ["get", list(op.namespace), op.key, op.refresh_ttl]
    if isinstance(op, PutOp):
        value = None if op.value is None else jsonenc.dumps(op.value)
        index = None if op.index is None else jsonenc.dumps(op.index)
        return ["put", list(op.namespace), op.key, value, -1.0 if op.ttl is None else float(op.ttl), index]
    if isinstance(op, SearchOp):
        wanted = jsonenc.dumps(op.filter) if op.filter else None
        return ["search", list(op.namespace_prefix), wanted, op.query or "", op.limit, op.offset, op.refresh_ttl]
    if isinstance(op, ListNamespacesOp):
        prefix, suffix = [], []
        for cond in op.match_conditions or ():
            if cond.match_type == "prefix":
                prefix = list(cond.path)
            else:
                suffix = list(cond.path)
        return ["list", prefix, suffix, op.max_depth or 0, op.limit, op.offset]
    raise ValueError(f"Unknown operation type: {type(op)}")


def _result(op: Op, row: Any) -> Result:
    if isinstance(op, GetOp):
        return None if row is None else Item(**_item(row))
    if isinstance(op, SearchOp):
        return [SearchItem(**_item(r), score=r[5]) for r in row]
    if isinstance(op, ListNamespacesOp):
        return [tuple(ns) for ns in row]
    return None


def _item(row: list) -> dict[str, Any]:
    namespace, key, value, created, updated, _score = row
    return {
        "namespace": tuple(namespace),
        "key": key,
        "value": jsonenc.loads(value),
        "created_at": _time(created),
        "updated_at": _time(updated),
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
