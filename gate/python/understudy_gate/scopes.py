"""ASGI scopes of requests that the server describes."""
from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl


def scope_of(request: dict[str, Any]) -> dict[str, Any]:
    """The scope of a request: {method, path, raw_path, query, headers, client, server, scheme, websocket}. Texts of headers are Latin-1."""
    websocket = request["websocket"]
    scope: dict[str, Any] = {
        "type": "websocket" if websocket else "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": ("wss" if request["scheme"] == "https" else "ws") if websocket else request["scheme"],
        "path": request["path"],
        "raw_path": request.get("raw_path", request["path"]).encode(),
        "query_string": request["query"].encode("latin-1", "replace"),
        "root_path": "",
        "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in request["headers"]],
        "client": tuple(request["client"]) if request.get("client") else None,
        "server": tuple(request["server"]) if request.get("server") else None,
        "path_params": {},
        "state": {},
        "extensions": {},
    }
    if websocket:
        scope["subprotocols"] = [p.strip() for k, v in scope["headers"] if k == b"sec-websocket-protocol" for p in v.decode("latin-1").split(",") if p.strip()]
        scope["extensions"] = {"websocket.http.response": {}}
    else:
        scope["method"] = request["method"]
    return scope


class Query(dict):
    """Parameters of a query where starlette, which has a better one, is not installed. The last of several values counts."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def getlist(self, key: str) -> list[str]:
        return [v for k, v in self._pairs if k == key]

    def multi_items(self) -> list[tuple[str, str]]:
        return list(self._pairs)


def query_of(scope: dict[str, Any]) -> Any:
    try:
        from starlette.datastructures import QueryParams
    except ImportError:
        return Query(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    return QueryParams(scope["query_string"])
