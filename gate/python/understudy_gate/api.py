"""The API of the server from inside: for routes that call get_client() without an address, for get_store(), and for what an application's middleware lets pass."""
from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from typing import Any

from . import codec, wire as w
from .asgi import HOP_BY_HOP
from .streams import Gone, Stream

# The request that the current code answers: its scope, None outside of one.
current: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("understudy_request", default=None)

# A client with this header acts as who sent the request that the route answers: get_client(headers={ACT_AS: "user"}).
ACT_AS = "understudy-act-as"


class Api:
    """Opens streams to the server."""

    def __init__(self, wire: w.Wire, prefix: str = "") -> None:
        self._wire = wire
        self.prefix = prefix  # of the paths of the API
        self.streams: dict[int, Stream] = {}
        self._next = w.OURS
        # Of an application around the API: tells its middleware who sent a request, and whether its exception handlers answer errors of the API.
        self.identify: Any = None
        self.raises = False
        self.limit = 0.0  # seconds for these

    def open(self, head: dict[str, Any]) -> Stream:
        self._next += 1
        if self._next >= 1 << 32:
            self._next = w.OURS + 1
        stream = self.streams[self._next] = Stream(self._wire, self._next)
        stream.head(w.OPEN, head)
        return stream

    def close(self, stream: Stream) -> None:
        if not stream.received_end:
            stream.abort()
        self.streams.pop(stream.number, None)

    async def call(self, what: str, value: dict[str, Any]) -> dict[str, Any]:
        """One question to the server that is no HTTP request."""
        stream = self.open({"do": what, **value})
        try:
            stream.end()
            kind, payload = await stream.next()
            if kind != w.HEADERS:
                raise Gone("the server does not answer")
            return codec.loads(payload)
        finally:
            self.close(stream)

    # --- an ASGI application that is the API ---------------------------------------------------

    async def __call__(self, scope: dict[str, Any], receive, send) -> None:
        target = scope.get("raw_path") or scope["path"].encode()
        target = target.partition(b"?")[0]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        head: dict[str, Any] = {
            "do": "api", "method": scope["method"], "target": target.decode("latin-1"), "passed": scope["understudy.stream"],
            "headers": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in scope["headers"] if k not in HOP_BY_HOP],
        }
        stream = self.open(head)
        sending = asyncio.get_running_loop().create_task(_upload(stream, receive))
        try:
            while True:
                kind, payload = await stream.next()
                if kind == w.HEADERS:
                    answer = codec.loads(payload)
                    if (user := answer.get("user")) is not None and self.identify is not None:
                        self.identify(scope, user)
                    if answer.get("raised") and self.raises:
                        exc = await _error(stream, answer)
                        scope["understudy.exchange"].handle(exc, self.limit)
                        raise exc
                    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in answer["headers"]]
                    await send({"type": "http.response.start", "status": answer["status"], "headers": headers})
                elif kind == w.BODY:
                    await send({"type": "http.response.body", "body": payload, "more_body": True})
                elif kind == w.END:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return
                elif kind == w.ABORT:
                    raise Gone("the server broke off its answer")
        finally:
            sending.cancel()
            self.close(stream)


async def _error(stream: Stream, answer: dict[str, Any]) -> Exception:
    """An error of the API as the exception that it is in LangGraph Server."""
    body = b""
    while True:
        kind, payload = await stream.next()
        if kind == w.BODY:
            body += payload
        elif kind == w.END:
            break
        elif kind == w.ABORT:
            raise Gone("the server broke off its answer")
    headers = [(k, v) for k, v in answer["headers"] if k.lower() not in ("content-type", "content-length", "date", "vary", "x-content-type-options")]
    return http_error({"status": answer["status"], "detail": codec.loads(body).get("detail"), "headers": headers})


def http_error(error: dict[str, Any]) -> Exception:
    from starlette.exceptions import HTTPException

    return HTTPException(error["status"], error["detail"], _Headers(error.get("headers") or ()) or None)


class _Headers(dict):
    """Headers of an exception. Who raised it may have spelled them in any case."""

    def __init__(self, pairs: Any) -> None:
        super().__init__((k.lower(), v) for k, v in pairs)

    def __getitem__(self, key: str) -> str:
        return super().__getitem__(key.lower())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and super().__contains__(key.lower())

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key.lower(), default)


async def _upload(stream: Stream, receive) -> None:
    """Passes on the body of a request, and that its client has left."""
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                stream.abort()
                stream.on_frame(w.ABORT, b"")
                return
            if body := message.get("body", b""):
                await stream.body(bytes(body))
            if not message.get("more_body", False) and not stream.sent_end:
                stream._wire.send(w.END, stream.number)  # the answer is still to come: an abort stays possible
    except Gone:
        pass


def install(api: Api) -> None:
    """Makes get_client() of langgraph_sdk, without an address, call this server."""
    import os

    try:
        import httpx
        from langgraph_sdk import client as sdk
    except ImportError:
        return
    modules = [sdk]
    for name in ("langgraph_sdk._async.client", "langgraph_sdk._shared.utilities"):
        try:
            modules.append(__import__(name, fromlist=["_"]))
        except ImportError:
            pass

    class Body(httpx.AsyncByteStream):
        def __init__(self, stream: Stream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                kind, payload = await self._stream.next()
                if kind == w.BODY:
                    yield payload
                elif kind == w.END:
                    return
                elif kind == w.ABORT:
                    raise httpx.RemoteProtocolError("the server broke off its answer")

        async def aclose(self) -> None:
            api.close(self._stream)

    class Transport(httpx.AsyncBaseTransport):
        def __init__(self, app: Any = None, *args: Any, **kwargs: Any) -> None:
            self.app = app  # which the SDK may set

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            head: dict[str, Any] = {"do": "api", "method": request.method, "target": api.prefix + request.url.raw_path.decode("latin-1")}
            headers = [(k.lower(), v) for k, v in request.headers.raw if k.lower() not in HOP_BY_HOP]
            act_as = next((v.decode() for k, v in headers if k == ACT_AS.encode()), "")
            head["headers"] = [[k.decode("latin-1"), v.decode("latin-1")] for k, v in headers if k not in (ACT_AS.encode(), b"authorization", b"x-api-key", b"content-length")]
            if act_as:
                head["actor"] = acting(act_as)
            stream = api.open(head)
            try:
                async for piece in request.stream:  # type: ignore[union-attr]
                    await stream.body(piece)
                stream._wire.send(w.END, stream.number)
                kind, payload = await stream.next()
                if kind != w.HEADERS:
                    raise httpx.RemoteProtocolError("the server does not answer")
            except BaseException:
                api.close(stream)
                raise
            answer = codec.loads(payload)
            return httpx.Response(answer["status"], headers=[(k, v) for k, v in answer["headers"]], stream=Body(stream))

    for module in modules:
        if hasattr(module, "get_asgi_transport"):
            module.get_asgi_transport = lambda: Transport
    # Before the SDK tries to import LangGraph Server, which may be installed and is not what runs here.
    os.environ["__LANGGRAPH_DEFER_LOOPBACK_TRANSPORT"] = "true"


def acting(as_: str) -> dict[str, Any]:
    """The user as whom a client acts."""
    scope = current.get()
    if as_ != "user":
        raise ValueError(f'the header {ACT_AS} is "user", not {as_!r}')
    user = scope.get("user") if scope is not None else None
    if user is None or not hasattr(user, "identity"):
        raise PermissionError(f"there is no user to act as: the header {ACT_AS} works in routes that are authenticated (http.enable_custom_route_auth)")
    fields = user.dict() if hasattr(user, "dict") else {
        "kind": "StudioUser", "identity": user.identity, "display_name": user.display_name, "is_authenticated": user.is_authenticated, "permissions": list(user.permissions),
    }
    return {
        "identity": str(user.identity), "display_name": str(user.display_name), "authenticated": bool(user.is_authenticated),
        "permissions": [str(p) for p in user.permissions], "user": codec.dumps(fields).decode(),
    }
