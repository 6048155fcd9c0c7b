"""Runs of graphs, and questions about them, each a task on the worker's loop."""
from __future__ import annotations

import asyncio
import dataclasses
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import InvalidUpdateError
from langgraph.types import StateUpdate
from langgraph.version import __version__ as langgraph_version
from pydantic import BaseModel

from . import clock, drawing, errors, fatal, inputs, inside, jsonenc, logs, transformers, unsaved, users
from .calls import Calls
from .context import Current, current
from .describe import Describer, tasks_json
from .graphs import Registry, attach, context_keys
from .release import MAKES_CONTEXT
from .saver import Saver
from .spans import Spans
from .steps import Steps
from .store import Store
from .streams import IDS, Shaper
from .unknown import Unknown
from .wire import ASK, BEGIN, CALLED, DONE, END, EVENT, NODE, FrameTooLarge, Wire

log = logging.getLogger(__name__)

OK, FAILED, CANCELLED, INVALID, REFUSED = 0, 1, 2, 3, 4

# How many bytes of checkpoints and writes a run may be ahead of the storage before its graph waits.
UNSAVED = 4 << 20


class ServerError(Exception):
    """The server could not do what it was asked. `number` is that of the question; 0: of a save without an answer."""

    def __init__(self, why: str, number: int = 0) -> None:
        super().__init__(why)
        self.number = number


class Asks:
    """Questions to the server that wait for their answers."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._next = 0
        self._waiting: dict[int, asyncio.Future] = {}
        self._lines: dict[int, Line] = {}

    def of(self, number: int) -> Line:
        line = self._lines[number] = Line(self, number)
        return line

    def close(self, number: int) -> None:
        """The call is over."""
        self._lines.pop(number, None)

    def refuse(self, number: int, why: str) -> None:
        if line := self._lines.get(number):
            line.refused = _failure(why)

    def answer(self, ident: int, ok: bool, value: Any) -> None:
        future = self._waiting.pop(ident, None)
        if future is None or future.done():
            return
        if ok:
            future.set_result(value)
        else:
            future.set_exception(_failure(value, ident))


def _failure(why: str, number: int = 0) -> Exception:
    return NotImplementedError(why) if why.startswith("not supported") else ServerError(why, number)


class Line:
    """The questions of one call."""

    def __init__(self, asks: Asks, number: int) -> None:
        self._asks = asks
        self._number = number
        # Why the server refused what was told without waiting. Nothing that is told later is done.
        self.refused: Exception | None = None
        # Bytes that were told since the last answer that came after them.
        self.unanswered = 0

    async def __call__(self, op: str, *args: Any) -> Any:
        return await self.later(op, *args)

    def later(self, op: str, *args: Any) -> asyncio.Future:
        """Asks, and gives what its answer will be."""
        asks = self._asks
        asks._next += 1
        future = asks._waiting[asks._next] = asks._loop.create_future()
        try:
            asks._wire.send([ASK, self._number, asks._next, op, *args])
        except BaseException:
            del asks._waiting[asks._next]
            raise
        return future

    def tell(self, op: str, *args: Any) -> None:
        """Asks for something that needs no answer. It is done in order with what is saved and loaded."""
        if self.refused is not None:
            raise self.refused
        self.unanswered += self._asks._wire.send([ASK, self._number, 0, op, *args])

    async def flush(self) -> None:
        """Waits until all that was told is done."""
        self.unanswered = 0
        await self.later("flush")


class Runner:
    def __init__(self, wire: Wire, registry: Registry, serde: Any) -> None:
        self._wire = wire
        self._registry = registry
        self._serde = serde
        self._loop = asyncio.get_running_loop()
        self.asks = Asks(wire)
        self._held: dict[int, dict[str, Any]] = {}  # runs that may not begin yet
        self._tasks: dict[int, asyncio.Task] = {}
        self._paused: dict[int, asyncio.Event] = {}
        self._cancelled: set[int] = set()
        self._begun: set[int] = set()

    # --- what the server sends ---------------------------------------------------------

    def hold(self, number: int, fields: dict[str, Any]) -> None:
        """Keeps a run until the server says that it may begin here: it moves runs that a worker does not read in time to another one."""
        self._held[number] = fields

    def go(self, number: int) -> None:
        if (fields := self._held.pop(number, None)) is not None:
            self.start(number, "run", fields)

    def start(self, number: int, op: str, fields: dict[str, Any]) -> None:
        task = self._loop.create_task(self._guarded(number, op, fields))
        fatal.watch(task)  # a call that fails is reported; one that cannot be reported would be waited for without end
        self._tasks[number] = task

    def cancel(self, number: int) -> None:
        self._held.pop(number, None)  # the server does not wait for the end of a run that has not begun
        if task := self._tasks.get(number):
            self._cancelled.add(number)
            # A task that is cancelled before its first step does not run at all, and the server would wait for its end in vain.
            if number in self._begun:
                task.cancel()
        if event := self._paused.pop(number, None):
            event.set()

    def pause(self, number: int, on: bool) -> None:
        if on and number in self._tasks:
            self._paused.setdefault(number, asyncio.Event())
        elif not on and (event := self._paused.pop(number, None)):
            event.set()

    # --- tasks -------------------------------------------------------------------------

    async def _guarded(self, number: int, op: str, fields: dict[str, Any]) -> None:
        who = Current(fields.get("run") or "", fields.get("thread") or "")
        if who.run_id:
            current.set(who)
        # What the worker itself ran in must not be inherited by graphs.
        var_child_runnable_config.set(None)
        done: list[Any]
        try:
            self._begun.add(number)
            if number in self._cancelled:
                raise asyncio.CancelledError
            payload = await getattr(self, "_" + op)(number, fields)
            done = [DONE, number, OK, payload, "", "", ""]
        except asyncio.CancelledError as exc:
            if number not in self._cancelled:
                # Something inside was cancelled, not the run.
                done = [DONE, number, FAILED, None, "CancelledError", errors.message(exc), errors.detail(exc)]
            else:
                done = [DONE, number, CANCELLED, None, "", "", ""]
        except _Unloadable as exc:
            # Why a graph cannot be loaded is shown whatever its kind: whoever serves it has to mend it.
            why = exc.args[0]
            done = [DONE, number, FAILED, None, type(why).__name__, str(why), errors.detail(why)]
        except _Invalid as exc:
            done = [DONE, number, INVALID, None, "", str(exc), ""]
        except ServerError as exc:
            # The server knows the error itself, with its kind.
            done = [DONE, number, REFUSED, exc.number, type(exc).__name__, errors.message(exc), errors.detail(exc)]
        except BaseException as exc:
            done = [DONE, number, FAILED, None, type(exc).__name__, errors.message(exc), errors.detail(exc)]
        finally:
            self._tasks.pop(number, None)
            self._paused.pop(number, None)
            self.asks.close(number)
            self._cancelled.discard(number)
            self._begun.discard(number)
        if who.run_id:
            logs.finish(who.run_id)
        try:
            self._wire.send(done)
        except (FrameTooLarge, TypeError) as exc:
            self._wire.send([DONE, number, FAILED, None, type(exc).__name__, str(exc), ""])

    def _source(self, graph_id: str):
        problem = self._registry.problems.get(graph_id)
        if problem is not None:
            raise _Unloadable(problem)
        return self._registry.sources[graph_id]

    def _config(self, fields: dict[str, Any], source: Any = None) -> tuple[dict, dict]:
        given = fields["factory"] if source is not None and source.static is None and fields.get("factory") else fields.get("config")
        config = jsonenc.loads(given) if given else {}
        conf = config["configurable"] = dict(config.get("configurable") or {})
        if fields.get("thread"):
            conf["thread_id"] = fields["thread"]
        fields["context_keys"] = conf.pop("__context_keys__", None)
        if (user := users.of(conf.get("langgraph_auth_user"))) is not None:
            conf["langgraph_auth_user"] = user
        inside.enter(fields.get("url") or "", fields.get("inside") or "")
        clock.after(fields["after"])
        return config, conf

    def _build(self, source, config: dict, context: Any, store: Any, access: str):
        for_factory = {"tags": [], "callbacks": None, "recursion_limit": 10007, **config}
        for_factory.pop("run_id", None)
        for_factory["metadata"] = dict(config.get("metadata") or {})
        for_factory["configurable"] = {**config["configurable"], "__is_for_execution__": access == "threads.create_run"}
        return source.build(for_factory, context, store, config["configurable"].get("langgraph_auth_user"), access)

    async def _run(self, number: int, f: dict[str, Any]) -> None:
        source = self._source(f["graph"])
        config, conf = self._config(f)
        if f["run"]:
            config["run_id"] = _uuid(f["run"])
            conf.setdefault("run_id", f["run"])
        config["metadata"] = _with_version(config.get("metadata") or {})
        if f.get("ns"):
            conf["checkpoint_ns"] = f["ns"]
        if f.get("checkpoint"):
            conf["checkpoint_id"] = f["checkpoint"]
            conf.setdefault("checkpoint_ns", "")
        if f.get("map"):
            conf["checkpoint_map"] = jsonenc.loads(f["map"])
        context = jsonenc.loads(f["context"]) if f.get("context") else None
        given = inputs.command(jsonenc.loads(f["command"])) if f.get("command") else jsonenc.loads(f["input"]) if f.get("input") else None

        ask = self.asks.of(number)
        store = Store(ask, self._loop)
        saves = bool(f["saves"])
        async with self._build(source, config, context, store, "threads.create_run") as (built, shapes):
            durability = f["durability"] or None
            waits = (durability or conf.get("__pregel_durability")) == "sync"
            saver = Saver(ask, self._serde, None, self._loop, waits) if saves else None
            graph = attach(built, saver, store)
            if saver is not None:
                saver.describer = Describer(graph, shapes, self._serde)
                if f["head"] is not None:
                    saver.head = (f["thread"], f["ns"], f["checkpoint"], f["head"][0])
            context = _known_context(graph, context, conf, f["context_keys"])

            unknown = Unknown(f["graph"], graph)
            if not f.get("command"):
                unknown.of_input(given)
            handlers: list[Any] = []
            if f["spans"] is not None:
                count = (lambda call: self._wire.send([CALLED, number, *call])) if f["calls"] else None
                handlers.append(Spans(
                    self._loop, count, lambda span: self._span([BEGIN, number, *span], 9), lambda span: self._span([END, number, *span], 10), f["spans"], unknown.of_node,
                ))
            elif f["calls"]:
                handlers.append(Calls(self._loop, lambda call: self._wire.send([CALLED, number, *call])))
            if f["steps"]:
                handlers.append(Steps(self._loop, lambda name, began: self._at_once([NODE, number, name, began])))
            if handlers:
                config["callbacks"] = handlers
            wanted = set(f["modes"])
            hold = saves and durability != "exit"
            if not hold:
                wanted.discard(IDS)  # of what is not saved
            events = "events" in wanted
            send = self._wire.send

            lost: list[FrameTooLarge] = []

            def emit(name: str, ns: str, data: bytes, checkpoint: str) -> None:
                try:
                    send([EVENT, number, name, ns, data, checkpoint if hold and name in ("values", IDS) and not ns else None])
                except FrameTooLarge as exc:
                    unsaved.note(exc, f"too large: {len(data)} bytes that are streamed in mode {name!r}")
                    lost.append(exc)  # here nobody would hear of it

            streaming = transformers.CHANNELS in wanted
            own = transformers.of(graph) if streaming else ()
            # A transformer may take its time between values and their checkpoint.
            soon = None if events or own else self._loop.call_soon
            shaper = Shaper(wanted, emit, hold, saver.loaded if saver else set(), soon)
            kwargs: dict[str, Any] = {"stream_mode": Shaper.modes(wanted, hold), "subgraphs": f["subgraphs"]}
            transformed = None
            if own:
                transformed = transformers.Transformed(own, shaper.item, shaper.channel)
                transformed.arguments(config, kwargs, kwargs["stream_mode"])
            if context is not None:
                kwargs["context"] = context
            if not events and (output := getattr(graph, "output_channels", None)) is not None:
                # As LangGraph Server: else the stream of a graph with an output schema would show its whole state.
                kwargs["output_keys"] = output
            if saves and durability:
                kwargs["durability"] = durability
            for key in ("interrupt_before", "interrupt_after"):
                if f.get(key):
                    kwargs[key] = jsonenc.loads(f[key])
            try:
                stream = graph.astream_events(given, config, version="v2", **kwargs) if events else graph.astream(given, config, **kwargs)
                async with _ending(stream):
                    if events:
                        await self._events(number, stream, f["subgraphs"], f["run"], shaper, ask)
                    elif transformed is not None:
                        await transformed.run(stream, lambda: self._rest(number, ask))
                    else:
                        await self._items(number, stream, f["subgraphs"], shaper, ask)
            finally:
                shaper.flush()
            if lost:
                raise lost[0]

    def _span(self, message: list, content: int) -> None:
        try:
            self._wire.send_late(message)
        except Exception:  # what a provider made does not fit: the times matter more
            message[2 + content] = None
            try:
                self._wire.send_late(message)
            except Exception:
                log.warning("a span of a run is not reported", exc_info=True)

    def _at_once(self, message: list) -> None:
        self._wire.send(message)
        self._wire.flush()

    async def _items(self, number: int, stream: Any, subgraphs: bool, shaper: Shaper, line: Line) -> None:
        paused, wire, item = self._paused, self._wire, shaper.item
        async for part in stream:
            if subgraphs:
                item(part[0], part[1], part[2])
            else:
                item((), part[0], part[1])
            if paused and number in paused or wire.congested or line.unanswered > UNSAVED:
                await self._wait(number, line)

    async def _events(self, number: int, stream: Any, subgraphs: bool, run: str, shaper: Shaper, line: Line) -> None:
        async for event in stream:
            if event["event"] == "on_chain_stream" and event["run_id"] == run:
                part = event["data"]["chunk"]
                if subgraphs:
                    shaper.item(part[0], part[1], part[2])
                else:
                    shaper.item((), part[0], part[1])
            else:
                shaper.event(event)
            if (wait := self._rest(number, line)) is not None:
                await wait

    def _rest(self, number: int, line: Line) -> Coroutine | None:
        return self._wait(number, line) if number in self._paused or self._wire.congested or line.unanswered > UNSAVED else None

    async def _wait(self, number: int, line: Line) -> None:
        """The reader of this run is behind, or the storage, or the socket is full."""
        if line.unanswered > UNSAVED:
            await line.flush()
        if event := self._paused.get(number):
            await event.wait()
        if self._wire.congested:
            await self._wire.drained()

    # --- questions ---------------------------------------------------------------------

    async def _explain(self, number: int, f: dict[str, Any]) -> list:
        source = self._source(f["graph"])
        config, conf = self._config(f, source)
        _at(conf, f)
        ask = self.asks.of(number)
        store = Store(ask, self._loop)
        async with self._build(source, config, None, store, "threads.read") as (built, shapes):
            saver = Saver(ask, self._serde, None, self._loop)
            graph = attach(built, saver, store)
            describer = Describer(graph, shapes, self._serde)
            state = await graph.aget_state(config)
            digest, shape = "", None
            try:
                digest, shape = describer.shape(describer._at(f["ns"]), f["ns"])
            except Exception as exc:
                log.debug("no shape of %r: %r", f["ns"], exc)
            return [jsonenc.dumps(state.values), list(state.next), tasks_json(state.tasks), digest, shape]

    async def _update(self, number: int, f: dict[str, Any]) -> list:
        source = self._source(f["graph"])
        config, conf = self._config(f, source)
        _at(conf, f)
        if f.get("map"):
            conf["checkpoint_map"] = jsonenc.loads(f["map"])
        ask = self.asks.of(number)
        store = Store(ask, self._loop)
        steps = [
            [
                StateUpdate(
                    inputs.command(jsonenc.loads(command)) if command else jsonenc.loads(values) if values else None,
                    node or None,
                    task or None,
                )
                for values, node, task, command in step
            ]
            for step in f["steps"]
        ]
        async with self._build(source, config, None, store, "threads.update") as (built, shapes):
            saver = Saver(ask, self._serde, None, self._loop)
            graph = attach(built, saver, store)
            saver.describer = Describer(graph, shapes, self._serde)
            try:
                after = await graph.abulk_update_state(config, steps)
            except (InvalidUpdateError, ValueError) as exc:
                raise _Invalid(str(exc)) from exc
            at = after["configurable"]
            return [str(at["thread_id"]), at.get("checkpoint_ns") or "", at["checkpoint_id"]]

    async def _describe(self, number: int, f: dict[str, Any]) -> bytes:
        source = self._source(f["graph"])
        config, _ = self._config(f)
        ask = self.asks.of(number)
        store = Store(ask, self._loop)
        async with self._build(source, config, None, store, "assistants.read") as (graph, _shapes):
            return jsonenc.dumps(await drawing.describe(graph, config, f))


@asynccontextmanager
async def _ending(stream: Any) -> AsyncIterator[None]:
    """Ends the nodes of a graph when what reads its stream fails; they would work on unheard."""
    try:
        yield
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()


class _Invalid(Exception):
    """What was asked makes no sense; its text is for the client."""


class _Unloadable(Exception):
    """The graph could not be imported or built when the worker started. Its argument is why."""


def _at(conf: dict, f: dict[str, Any]) -> None:
    conf["checkpoint_ns"] = f["ns"]
    if f.get("checkpoint"):
        conf["checkpoint_id"] = f["checkpoint"]
    else:
        conf.pop("checkpoint_id", None)


def _with_version(metadata: dict) -> dict:
    """`langgraph_version` beside the other facts about the run that the server adds."""
    if "langgraph_version" in metadata:
        return metadata
    out = {}
    for k, v in metadata.items():
        out[k] = v
        if k == "run_attempt":
            out["langgraph_version"] = langgraph_version
    out["langgraph_version"] = langgraph_version
    return out


def _known_context(graph: Any, context: Any, conf: dict, from_context: list | None) -> Any:
    if getattr(graph, "context_schema", None) is None:
        return context or None
    # A graph that has a schema gets a context, with the schema's defaults.
    context = {} if context is None else context
    if not isinstance(context, dict):
        return context
    if (known := context_keys(graph)) is not None:
        for key in from_context or ():
            if key not in known:
                conf.pop(key, None)
        context = {k: v for k, v in context.items() if k in known}
    schema = graph.context_schema
    if not MAKES_CONTEXT and (dataclasses.is_dataclass(schema) or isinstance(schema, type) and issubclass(schema, BaseModel)):
        return schema(**context)
    return context


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


