"""The store that get_store() gives in routes: operations done by the API from inside, on behalf of nobody, as in graphs."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp

from . import codec, wire as w
from .api import Api


class Store(BaseStore):
    supports_ttl = True
    ttl_config = {"default_ttl": 0, "refresh_on_read": None}

    __slots__ = ("_api", "_loop", "_config")

    def __init__(self, api: Api, loop: asyncio.AbstractEventLoop) -> None:
        self._api, self._loop = api, loop
        self._config: Any = None

    def provide(self) -> None:
        """Makes this the store of the current context."""
        if self._config is None:
            from langgraph._internal._constants import CONF, CONFIG_KEY_RUNTIME
            from langgraph.runtime import Runtime

            self._config = {CONF: {CONFIG_KEY_RUNTIME: Runtime(store=self)}}
        from langchain_core.runnables.config import var_child_runnable_config

        var_child_runnable_config.set(self._config)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            raise asyncio.InvalidStateError("Synchronous calls to the store detected in the main event loop. Use `await store.aget(...)`, and so on.")
        return asyncio.run_coroutine_threadsafe(self.abatch(list(ops)), self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return [await self._one(op) for op in ops]

    async def _one(self, op: Op) -> Result:
        if isinstance(op, PutOp):
            if op.value is None:
                await self._ask("DELETE", "/store/items", {"namespace": list(op.namespace), "key": op.key})
                return None
            body: dict[str, Any] = {"namespace": list(op.namespace), "key": op.key, "value": op.value}
            if op.index is not None:
                body["index"] = op.index
            if op.ttl:
                body["ttl"] = op.ttl
            await self._ask("PUT", "/store/items", body)
            return None
        if isinstance(op, GetOp):
            from urllib.parse import urlencode

            query: list[tuple[str, str]] = [("key", op.key), ("namespace", ".".join(op.namespace))]
            if op.refresh_ttl is not None:
                query.append(("refresh_ttl", "true" if op.refresh_ttl else "false"))
            row = await self._ask("GET", "/store/items?" + urlencode(query), None, missing=True)
            return None if row is None else Item(**_item(row))
        if isinstance(op, SearchOp):
            body = {"namespace_prefix": list(op.namespace_prefix), "limit": op.limit, "offset": op.offset}
            if op.filter:
                body["filter"] = op.filter
            if op.query:
                body["query"] = op.query
            if op.refresh_ttl is not None:
                body["refresh_ttl"] = op.refresh_ttl
            found = await self._ask("POST", "/store/items/search", body)
            return [SearchItem(**_item(row), score=row.get("score")) for row in found["items"]]
        if isinstance(op, ListNamespacesOp):
            body = {"limit": op.limit, "offset": op.offset}
            if op.max_depth is not None:
                body["max_depth"] = op.max_depth
            for condition in op.match_conditions or ():
                body[condition.match_type] = list(condition.path)
            found = await self._ask("POST", "/store/namespaces", body)
            return [tuple(n) for n in found["namespaces"]]
        raise ValueError(f"Unknown operation type: {type(op)}")

    async def _ask(self, method: str, target: str, body: Any, missing: bool = False) -> Any:
        headers = [["content-type", "application/json"]] if body is not None else []
        stream = self._api.open({"do": "api", "method": method, "target": self._api.prefix + target, "headers": headers})
        try:
            if body is not None:
                await stream.body(codec.dumps(body))
            stream._wire.send(w.END, stream.number)
            kind, payload = await stream.next()
            if kind != w.HEADERS:
                raise RuntimeError("the server does not answer")
            status, parts = codec.loads(payload)["status"], []
            while (got := await stream.next())[0] == w.BODY:
                parts.append(got[1])
            if got[0] != w.END:
                raise RuntimeError("the server broke off its answer")
        finally:
            self._api.close(stream)
        text = b"".join(parts)
        if status == 404 and missing:
            return None
        if status >= 400:
            raise ValueError(f"the store refused {method} {target.partition('?')[0]}: {status} {text.decode('utf-8', 'replace')[:500]}")
        return codec.loads(text) if text else None


def _item(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "namespace": tuple(row["namespace"]), "key": row["key"], "value": row["value"],
        "created_at": datetime.fromisoformat(row["created_at"].replace("Z", "+00:00")), "updated_at": datetime.fromisoformat(row["updated_at"].replace("Z", "+00:00")),
    }
