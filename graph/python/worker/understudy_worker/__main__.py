"""Entry point. boot.py passes the socket, and the server what to load as JSON in the environment."""
from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import sys
from collections.abc import Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor

from . import entry

# When Python looks for cycles: with its own thresholds that takes a fifth of the time of streaming tokens.
COLLECT = (10_000, 20, 50)
# The oldest langgraph that the worker has been tried with. doctor.go says it too.
MINIMUM = (0, 6)


def main(sock: socket.socket) -> None:
    def prepare(options: dict, loop: asyncio.AbstractEventLoop) -> tuple[Executor, Coroutine]:
        # An empty frame: this code runs. Importing langgraph may take seconds on a busy machine, and is no interpreter that hangs.
        sock.sendall(bytes(4))
        # Nodes that are plain functions run here. Threads are made when needed.
        return ThreadPoolExecutor(max_workers=max(64, 2 * options.get("jobs", 0)), thread_name_prefix="node"), load(sock, options, loop)

    entry.run(sock, prepare)


def require() -> None:
    """Says in one line what is wrong with langgraph, where what follows would only say which name it lacks."""
    from langgraph.version import __version__ as have

    found = re.match(r"(\d+)\.(\d+)", have)
    if found and tuple(map(int, found.groups())) < MINIMUM:
        raise ImportError(f"graphs need langgraph {'.'.join(map(str, MINIMUM))} or later, and this is {have}")


def load(sock: socket.socket, options: dict, loop: asyncio.AbstractEventLoop) -> Coroutine:
    """Imports the graphs, and returns what serves them.

    The loop does not run yet: as in LangGraph Server, modules may call asyncio.run when they are imported, to ask what tools there are.
    """
    require()
    from . import inside

    inside.install()
    from . import blocked, deltas, errors, logs, places, serde
    from .graphs import Registry, unused
    from .runs import Runner
    from .wire import ANSWER, CALL, CANCEL, GO, HELLO, LOADED, LOADING, LOG, PAUSE, PING, PONG, REFUSE, RUN, Wire, frame

    runner: Runner | None = None

    def on_message(message: list) -> None:
        kind = message[0]
        if kind == ANSWER:
            runner.asks.answer(message[1], message[2], message[3])
        elif kind == RUN:
            runner.hold(message[1], message[2])
        elif kind == GO:
            runner.go(message[1])
        elif kind == CALL:
            runner.start(message[1], message[2], message[3])
        elif kind == CANCEL:
            runner.cancel(message[1])
        elif kind == PING:
            wire.send([PONG, message[1]])
            wire.flush()  # at once: the runs that came after it wait for what the server says to that
        elif kind == PAUSE:
            runner.pause(message[1], message[2])
        elif kind == REFUSE:
            runner.asks.refuse(message[1], message[2])

    wire: Wire | None = None

    def say(message: list) -> None:
        # What happens in an import has to leave at once: the loop may never get to it.
        if wire is None:
            try:
                sock.sendall(frame(message))
            except (BrokenPipeError, ConnectionResetError):
                os._exit(0)  # the server has ended meanwhile: nothing is left to load graphs for
        else:
            wire.send(message)

    def described(problem: BaseException | None) -> list[str]:
        return ["", "", ""] if problem is None else [type(problem).__name__, str(problem)[:4096], errors.detail(problem)]

    deltas.install()
    logs.install(loop, lambda *line: say([LOG, *line]))
    registry = Registry(options["graphs"], options["dir"])
    # The server does not ping before the greeting. Set before, so that a module may set it otherwise.
    gc.set_threshold(*COLLECT)
    watch = blocked.Watch(loop, [options["dir"], *options["paths"]])
    watch.importing = True
    watch.start()
    registry.load(
        options.get("skip") or {},
        lambda graph_id: say([LOADING, graph_id]),
        lambda graph_id, problem: say([LOADED, graph_id, *described(problem)]),
    )
    watch.loaded()
    say([LOADING, ""])  # what fails from here on is no graph's fault
    # What was imported stays: it need not be looked through again.
    gc.collect()
    gc.freeze()

    async def serve() -> None:
        nonlocal wire, runner
        _, wire = await loop.create_connection(lambda: Wire(on_message), sock=sock)
        runner = Runner(wire, registry, serde.make(options.get("serde")))
        import langgraph.version

        problems = [[g, *described(e)] for g, e in registry.problems.items()]
        replaced = [[g, what] for g, source in registry.sources.items() if source.static is not None and (what := unused(source.static))]
        wire.send([HELLO, langgraph.version.__version__, ".".join(map(str, sys.version_info[:3])), problems, replaced, [[g, places.of(source.static)] for g, source in registry.sources.items() if source.static is not None]])

    return serve()
