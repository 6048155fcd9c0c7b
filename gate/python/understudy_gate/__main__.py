"""Entry point: main gets the socket, and what to load as JSON in the environment."""
from __future__ import annotations

import asyncio
import gc
import socket
import sys
import traceback
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any

from . import codec, entry, slow, threads, wire as w
from .loading import Loader


def main(sock: socket.socket) -> None:
    def prepare(options: dict[str, Any], _loop: asyncio.AbstractEventLoop) -> tuple[Executor, Coroutine]:
        sys.stdout.reconfigure(line_buffering=True)
        return threads.executor(), serve(sock, options)

    entry.run(sock, prepare)


async def serve(sock: socket.socket, options: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    gate = Gate(loop)
    _, gate.wire = await loop.create_connection(lambda: w.Wire(gate.on_frame), sock=sock)
    hello: dict[str, Any] = {"python": ".".join(map(str, sys.version_info[:3]))}
    places = slow.Places(loop, [options["dir"], *(options["paths"] or [])])
    watch = gate.watch = slow.Watch(places, options["slow"], options["again"])
    try:
        await gate.load(options, hello)
    except BaseException as exc:
        hello["problem"] = {
            "part": gate.loading, "type": type(exc).__name__, "message": str(exc)[:4096], "trace": "".join(traceback.format_exception(exc))[-32768:],
        }
    watch.stop()
    gc.collect()
    gc.freeze()
    gate.wire.send(w.HELLO, 0, codec.dumps(hello))
    watched = slow.Loop(places, options["blocked"])
    if names := gate.handlers():
        slow.Calls(places, gate.calls, names, options["answer"], watched)


class Gate:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wire: w.Wire
        self.watch: slow.Watch
        self.loading = ""
        self._handlers: Any = None
        self._embedding: Any = None
        self._encryption: Any = None
        self._tools: Any = None
        self._app: Any = None
        self._lifespan: Any = None
        self._api: Any = None
        self.calls: dict[int, asyncio.Task] = {}
        self._streams: dict[int, Any] = {}
        self._exchanges: set[asyncio.Task] = set()  # the loop alone does not keep a task that waits for what nothing else knows

    async def load(self, options: dict[str, Any], hello: dict[str, Any]) -> None:
        from . import api, output

        loader = Loader(options["dir"])
        output.install(self._loop, self.wire)
        self._api = api.Api(self.wire, (options.get("http") or {}).get("prefix") or "")
        api.install(self._api)

        def find(spec: str) -> Any:
            path, _, name = spec.rpartition(":")
            module = loader.module(path)
            try:
                return getattr(module, name)
            except AttributeError:
                raise AttributeError(f"there is no {name!r} in {path}") from None

        if spec := options.get("auth"):
            from .auth import Handlers

            self._begin("auth")
            self._handlers = Handlers(find(spec), options["limit"])
            hello["gaps"] = self._handlers.gaps()
        if spec := options.get("embed"):
            from . import embedding

            self._begin("embed")
            by_path = spec.rpartition(":")[0].endswith(".py") or "/" in spec
            self._embedding = embedding.Embedding(find(spec) if by_path else embedding.by_name(spec))
        if spec := options.get("encryption"):
            from .encryption import Encryption

            self._begin("encryption")
            self._encryption = Encryption(find(spec))
            hello["encryption"] = self._encryption.describe()
        if specs := options.get("tools"):
            from .tools import Tools

            self._begin("tools")
            self._tools = Tools(specs, find)
            hello["tools"] = self._tools.found
        if spec := options.get("app"):
            from .application import Application
            from .asgi import Lifespan

            self.loading = "app"
            store = None
            try:
                from .store import Store

                store = Store(self._api, self._loop)
            except ImportError:
                pass  # without langgraph there is no get_store
            self._begin("app")
            self._api.limit = options["limit"]
            self._app = Application(find(spec), options.get("http") or {}, self._api, store)
            self._app.user_of = self._user_of
            hello["app"] = self._app.describe()
            if not (options.get("http") or {}).get("unstarted"):
                self._lifespan = Lifespan(self._app)
                self.watch.begin("app", "startup")
                await self._lifespan.start()
        self.loading = ""

    def handlers(self) -> dict[Any, str]:
        """The handlers that questions wait for, as users know them."""
        return slow.codes({name: function for part in (self._handlers, self._encryption) if part is not None for name, function in part.names().items()})

    def _begin(self, part: str) -> None:
        self.loading = part
        self.watch.begin(part)

    def _user_of(self, form: dict[str, Any]) -> Any:
        from . import users

        return self._handlers.actor(form) if self._handlers is not None else users.stored(form["user"], form["permissions"])

    # --- frames ----------------------------------------------------------------------------

    def on_frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == w.CALL:
            self._start(self.calls, number, self._call(number, payload))
        elif kind == w.CANCEL:
            if task := self.calls.get(number):
                task.cancel()
        elif kind == w.PING:
            self.wire.send(w.PONG, number)
        elif kind == w.STOP:
            self._start(self.calls, number, self._stop(number))
        elif kind == w.OPEN:
            self._open(number, codec.loads(payload))
        elif stream := (self._api.streams if number >= w.OURS else self._streams).get(number):
            stream.on_frame(kind, payload)

    def _start(self, table: dict[int, asyncio.Task], number: int, work: Any) -> asyncio.Task:
        task = table[number] = self._loop.create_task(work)
        task.add_done_callback(lambda _: table.pop(number, None))
        return task

    def _log(self, text: str, fix: str = "") -> None:
        self.wire.send(w.LOG, 0, codec.dumps({"level": 40, "logger": "http.app", "text": text, "fix": fix}))

    def _open(self, number: int, head: dict[str, Any]) -> None:
        from .asgi import Exchange, Socket
        from .streams import Stream

        if (actor := head.get("user")) is not None:
            head["user"] = self._user_of(actor)
        stream = self._streams[number] = Stream(self.wire, number)
        exchange = (Socket if head["websocket"] else Exchange)(stream, head)

        async def run() -> None:
            try:
                await exchange.run(self._app, self._lifespan.state, self._log)
            finally:
                self._streams.pop(number, None)

        task = self._loop.create_task(run())
        self._exchanges.add(task)
        task.add_done_callback(lambda t: self._exchanges.discard(t) or t.cancelled() or t.exception())

    async def _stop(self, number: int) -> None:
        answer: dict[str, Any] = {}
        if self._lifespan is not None:
            try:
                await self._lifespan.stop()
            except BaseException as exc:
                answer["problem"] = "".join(traceback.format_exception(exc))[-16384:]
        self.wire.send(w.STOPPED, number, codec.dumps(answer))

    # --- calls -----------------------------------------------------------------------------

    async def _call(self, number: int, payload: bytes) -> None:
        from .auth import Refused, broken

        answer: dict[str, Any] = {}
        try:
            try:
                await self._answer(codec.loads(payload), answer)
            except Refused:
                raise
            except asyncio.CancelledError:
                return  # nobody waits for it any more
            except BaseException as exc:
                raise broken(f"{type(exc).__name__} in the gate", exc) from None
        except Refused as exc:
            answer["refusal"] = exc.form()
        try:
            text = codec.dumps(answer)
        except Exception as exc:
            text = codec.dumps({"refusal": broken("an answer has no form in JSON", exc).form()})
        self.wire.send(w.RESULT, number, text)

    async def _answer(self, call: dict[str, Any], answer: dict[str, Any]) -> None:
        do = call["do"]
        asyncio.current_task().set_name(do)  # for slow.Calls
        if do == "embed":
            answer["vectors"] = await self._embedding(call["texts"], call.get("query", False))
            return
        if do == "tool":
            answer["tool"] = await self._tools.call(call)
            return
        if do in ("wrap", "unwrap", "readable", "encryption_context"):
            await self._encryption.answer(call, answer, self._user_of)
            return
        if do == "decide":
            user = self._handlers.actor(call["actor"])
            answer["decisions"] = [await self._handlers.decide(user, question) for question in call["questions"]]
            return
        if do == "admit":
            await self._handlers.admit(answer, call["request"], call["questions"])
            return
        _, answer["actor"] = await self._handlers.authenticate(call["request"])
