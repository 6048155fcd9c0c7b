"""get_client() without an address, in graphs: requests go to the server that runs the graph, as the user of the run."""
from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any, NamedTuple

import httpx

HEADER = "x-understudy-inside"


class Server(NamedTuple):
    url: str
    credential: str  # of the run's user; "": the server asks nobody for credentials


server: ContextVar[Server | None] = ContextVar("understudy_server", default=None)
_latest: Server | None = None  # for code that runs outside of any run, in threads of its own


def enter(url: str, credential: str) -> None:
    """The current task runs a graph for this server."""
    global _latest
    if url:
        server.set(Server(url, credential))
        _latest = Server(url, "")


class Transport(httpx.AsyncBaseTransport):
    """Sends requests to the server of the run that makes them."""

    def __init__(self, app: Any = None, root_path: str = "", **_: Any):
        self.app = app
        self._http: httpx.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        at = server.get() or _latest
        if at is None:
            raise httpx.ConnectError("get_client() without an address works inside of runs only; name the server: get_client(url=...)", request=request)
        if self._http is None:
            self._http = httpx.AsyncHTTPTransport(retries=1)
        base = httpx.URL(at.url)
        request.url = request.url.copy_with(scheme=base.scheme, host=base.host, port=base.port, raw_path=base.raw_path.rstrip(b"/") + request.url.raw_path)
        request.headers["host"] = base.netloc.decode()
        if at.credential:
            request.headers[HEADER] = at.credential
        return await self._http.handle_async_request(request)

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None


def install() -> None:
    """Clients that are made without an address from now on use Transport. Call it before graphs are imported."""
    os.environ["__LANGGRAPH_DEFER_LOOPBACK_TRANSPORT"] = "true"
    try:
        from langgraph_sdk._async import client
    except ImportError:
        return
    if hasattr(client, "get_asgi_transport"):
        client.get_asgi_transport = lambda: Transport
