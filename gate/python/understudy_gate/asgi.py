"""Runs an ASGI application for requests that the server passes on, and its lifespan."""
from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

from . import codec, wire as w
from .scopes import scope_of
from .streams import Gone, Stream

HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade"}


class Lifespan:
    """The lifespan of an application: started before the first request, ended after the last."""

    def __init__(self, app: Callable) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        self._in: asyncio.Queue = asyncio.Queue()
        self._answers: asyncio.Queue = asyncio.Queue()
        self._task: asyncio.Task | None = None

    async def start(self) -> None:
        """Raises what the application raised."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        await self._in.put({"type": "lifespan.startup"})
        await self._await("lifespan.startup.complete", "lifespan.startup.failed")

    async def stop(self) -> None:
        if self._task is None or self._task.done():
            return
        await self._in.put({"type": "lifespan.shutdown"})
        await self._await("lifespan.shutdown.complete", "lifespan.shutdown.failed")

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        await self._app(scope, self._in.get, self._answers.put)

    async def _await(self, complete: str, failed: str) -> None:
        answer = asyncio.get_running_loop().create_task(self._answers.get())
        await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            message = answer.result()
            if message["type"] == failed:
                if self._task.done() and not self._task.cancelled() and self._task.exception() is not None:
                    raise self._task.exception()
                await asyncio.wait({self._task}, timeout=1)
                if self._task.done() and self._task.exception() is not None:
                    raise self._task.exception()
                raise RuntimeError(message.get("message") or failed)
            return
        answer.cancel()
        if self._task.exception() is not None:
            raise self._task.exception()
        # It ended without an answer: it has no lifespan.


def _refused(detail: Any) -> bytes:
    return codec.dumps({"detail": detail})


class Exchange:
    """One HTTP request to the application."""

    def __init__(self, stream: Stream, head: dict[str, Any]) -> None:
        self._stream, self._head = stream, head
        self._started = self._complete = self._body_read = False
        self._finished = asyncio.Event()
        self._task: asyncio.Task | None = None
        self._late: asyncio.TimerHandle | None = None

    def handle(self, exc: Any, limit: float) -> None:
        """Lets the exception handlers of the application answer an error of the API, for so many seconds: the API answers it otherwise."""
        if self._late is not None:
            self._late.cancel()
        self._late = asyncio.get_running_loop().call_later(limit, self._give_up, exc, limit)

    def _give_up(self, exc: Any, limit: float) -> None:
        if self._complete:
            return
        self._log(
            f"an exception handler of the application did not answer in time: the error is answered as without it: {self._head['method']} {self._head['path']}, limit {limit:g} s",
            "look for calls without a timeout in the exception handlers, or raise --gate-timeout",
        )
        if self._started:  # its end is missing
            self._stream.abort()
        else:
            self._stream.head(w.HEADERS, {"status": exc.status_code, "headers": [["content-type", "application/json"], *((k, v) for k, v in (exc.headers or {}).items())]})
            if self._head["method"] != "HEAD" and not self._stream.gone:
                self._stream._wire.send(w.BODY, self._stream.number, _refused(exc.detail))
            self._stream.end()
        self._started = self._complete = True
        self._finished.set()
        if self._task is not None:
            self._task.cancel()

    async def run(self, app: Callable, state: dict[str, Any], log: Callable[..., None]) -> None:
        self._log, self._task = log, asyncio.current_task()
        scope = scope_of(self._head)
        scope["understudy.exchange"] = self
        scope["state"] = dict(state)
        scope["root_path"] = self._head.get("root_path", "")
        scope["understudy"] = self._head
        scope["understudy.stream"] = self._stream.number
        try:
            await app(scope, self._receive, self._send)
        except Gone:
            pass
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            if not getattr(exc, "__understudy_logged__", False):
                log(f"the application failed: {self._head['method']} {self._head['path']}\n" + "".join(traceback.format_exception(exc))[-16384:])
        finally:
            if self._late is not None:
                self._late.cancel()
            self._finish()

    def _finish(self) -> None:
        if self._complete:
            return
        if not self._started:  # nothing was answered
            self._stream.head(w.HEADERS, {"status": 500, "headers": [["content-type", "text/plain; charset=utf-8"]]})
            if not self._stream.gone:
                self._stream._wire.send(w.BODY, self._stream.number, b"Internal Server Error")
            self._stream.end()
        else:
            self._stream.abort()
        self._complete = True
        self._finished.set()

    async def _receive(self) -> dict[str, Any]:
        if self._body_read or self._complete:
            await self._gone_or_finished()
            return {"type": "http.disconnect"}
        kind, payload = await self._stream.next()
        if kind == w.BODY:
            return {"type": "http.request", "body": payload, "more_body": True}
        if kind == w.END:
            self._body_read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    async def _gone_or_finished(self) -> None:
        left = asyncio.ensure_future(self._left())
        over = asyncio.ensure_future(self._finished.wait())
        try:
            await asyncio.wait({left, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            over.cancel()

    async def _left(self) -> None:
        while not self._stream.gone:
            kind, _ = await self._stream.next()
            if kind == w.ABORT:
                return

    async def _send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            if self._started:
                raise RuntimeError("the response has started already")
            self._started = True
            headers = [
                [bytes(k).decode("latin-1"), bytes(v).decode("latin-1")] for k, v in message.get("headers", ()) if bytes(k).lower() not in HOP_BY_HOP
            ]
            self._stream.head(w.HEADERS, {"status": message["status"], "headers": headers})
        elif kind == "http.response.body":
            if not self._started:
                raise RuntimeError("the response has not started")
            if self._complete:
                raise RuntimeError("the response is complete already")
            if body := message.get("body", b""):
                if self._head["method"] != "HEAD":
                    await self._stream.body(bytes(body))
            if not message.get("more_body", False):
                self._complete = True
                self._stream.end()
                self._finished.set()


class Socket:
    """One WebSocket to the application."""

    def __init__(self, stream: Stream, head: dict[str, Any]) -> None:
        self._stream, self._head = stream, head
        self._connected = self._accepted = self._closed = False
        self._response = False

    async def run(self, app: Callable, state: dict[str, Any], log: Callable[[str], None]) -> None:
        scope = scope_of(self._head)
        scope["state"] = dict(state)
        scope["root_path"] = self._head.get("root_path", "")
        scope["understudy"] = self._head
        scope["understudy.stream"] = self._stream.number
        try:
            await app(scope, self._receive, self._send)
        except Gone:
            pass
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            log(f"the application failed: WebSocket {self._head['path']}\n" + "".join(traceback.format_exception(exc))[-16384:])
            if self._accepted:
                self._close(1011, "")
        finally:
            if not self._accepted and not self._closed:
                self._refuse(500 if self._connected else 403, [], b"")
            elif not self._closed:
                self._close(1000 if self._accepted else 1011, "")

    def _close(self, code: int, reason: str) -> None:
        if not self._closed:
            self._closed = True
            self._stream.head(w.CLOSE, {"code": code, "reason": reason})
            self._stream.end()

    def _refuse(self, status: int, headers: list, body: bytes) -> None:
        self._closed = True
        self._stream.head(w.HEADERS, {"status": status, "headers": headers})
        if body:
            self._stream._wire.send(w.BODY, self._stream.number, body)
        self._stream.end()

    async def _receive(self) -> dict[str, Any]:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        while True:
            kind, payload = await self._stream.next()
            if kind == w.TEXT:
                return {"type": "websocket.receive", "text": payload.decode()}
            if kind == w.BINARY:
                return {"type": "websocket.receive", "bytes": payload}
            if kind == w.CLOSE:
                said = codec.loads(payload)
                return {"type": "websocket.disconnect", "code": said["code"], "reason": said.get("reason") or None}
            if kind in (w.ABORT, w.END):
                return {"type": "websocket.disconnect", "code": 1006}

    async def _send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.accept":
            if self._accepted or self._closed:
                raise RuntimeError("the WebSocket has been answered already")
            self._accepted = True
            headers = [[bytes(k).decode("latin-1"), bytes(v).decode("latin-1")] for k, v in message.get("headers", ())]
            self._stream.head(w.HEADERS, {"status": 101, "headers": headers, "subprotocol": message.get("subprotocol") or ""})
        elif kind == "websocket.send":
            if not self._accepted or self._closed:
                raise RuntimeError("the WebSocket is not open")
            if (text := message.get("text")) is not None:
                await self._stream.message(w.TEXT, text.encode())
            else:
                await self._stream.message(w.BINARY, bytes(message["bytes"]))
        elif kind == "websocket.close":
            if not self._accepted:
                if not self._closed:
                    self._refuse(403, [], b"")
            else:
                self._close(message.get("code") or 1000, message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            headers = [[bytes(k).decode("latin-1"), bytes(v).decode("latin-1")] for k, v in message.get("headers", ())]
            self._closed = self._response = True
            self._stream.head(w.HEADERS, {"status": message["status"], "headers": headers})
        elif kind == "websocket.http.response.body" and self._response:
            if body := message.get("body", b""):
                await self._stream.body(bytes(body))
            if not message.get("more_body", False):
                self._stream.end()
