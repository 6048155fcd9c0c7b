"""Entry point. boot.py passes the socket, and the server what to load as JSON in the environment."""
from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

from . import fatal

CONFIG = "UNDERSTUDY_WORKER"
# When Python looks for cycles: with its own thresholds that takes a fifth of the time of streaming tokens.
COLLECT = (10_000, 20, 50)
# The oldest langgraph that the worker has been tried with. doctor.go says it too.
MINIMUM = (0, 6)


def main(sock: socket.socket) -> None:
    try:
        work(sock)
    except BaseException as exc:
        fatal.end(exc)
    os._exit(0)


def work(sock: socket.socket) -> None:
    # Graphs start processes of their own: those need neither the setting nor the socket.
    options = json.loads(os.environ.pop(CONFIG))
    sock.set_inheritable(False)
    # An empty frame: this code runs. Importing langgraph may take seconds on a busy machine, and is no interpreter that hangs.
    sock.sendall(bytes(4))
    # A forked child must not keep it open: its end tells the server that this process has ended.
    if hasattr(os, "register_at_fork"):
        fd = sock.fileno()
        os.register_at_fork(after_in_child=lambda: _close(fd))
    for path in reversed([options["dir"], *options["paths"]]):
        if path in sys.path:
            sys.path.remove(path)
        sys.path.insert(0, path)
    try:
        import uvloop

        loop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # Nodes that are plain functions run here. Threads are made when needed.
    loop.set_default_executor(ThreadPoolExecutor(max_workers=max(64, 2 * options.get("jobs", 0)), thread_name_prefix="node"))
    first = loop.create_task(serve(sock, options))
    fatal.watch(first)
    while True:
        try:
            loop.run_forever()
            break
        except (SystemExit, KeyboardInterrupt):
            # A node called sys.exit: that is its own run's failure.
            if first.done() and not first.cancelled() and first.exception() is not None:
                raise


def require() -> None:
    """Says in one line what is wrong with langgraph, where what follows would only say which name it lacks."""
    from langgraph.version import __version__ as have

    found = re.match(r"(\d+)\.(\d+)", have)
    if found and tuple(map(int, found.groups())) < MINIMUM:
        raise ImportError(f"graphs need langgraph {'.'.join(map(str, MINIMUM))} or later, and this is {have}")


async def serve(sock: socket.socket, options: dict) -> None:
    require()
    from . import inside

    inside.install()
    from . import blocked, deltas, errors, logs, serde
    from .graphs import Registry
    from .runs import Runner
    from .wire import ANSWER, CALL, CANCEL, HELLO, LOADED, LOADING, LOG, PAUSE, PING, PONG, REFUSE, RUN, Wire, frame

    loop = asyncio.get_running_loop()
    runner: Runner | None = None

    def on_message(message: list) -> None:
        kind = message[0]
        if kind == ANSWER:
            runner.asks.answer(message[1], message[2], message[3])
        elif kind == RUN:
            runner.start(message[1], "run", message[2])
        elif kind == CALL:
            runner.start(message[1], message[2], message[3])
        elif kind == CANCEL:
            runner.cancel(message[1])
        elif kind == PING:
            wire.send([PONG, message[1]])
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
    # Here, on the loop: modules may start tasks when they are imported. The server does not ping before the greeting.
    # Set before, so that a module may set it otherwise.
    gc.set_threshold(*COLLECT)
    watch = blocked.Watch(loop, [options["dir"], *options["paths"]])
    watch.importing = True
    watch.start()
    registry.load(
        options.get("skip") or {},
        lambda graph_id: say([LOADING, graph_id]),
        lambda graph_id, problem: say([LOADED, graph_id, *described(problem)]),
    )
    watch.importing = False
    say([LOADING, ""])  # what fails from here on is no graph's fault
    # What was imported stays: it need not be looked through again.
    gc.collect()
    gc.freeze()
    _, wire = await loop.create_connection(lambda: Wire(on_message), sock=sock)
    runner = Runner(wire, registry, serde.make(options.get("serde")))
    import langgraph.version

    problems = [[g, *described(e)] for g, e in registry.problems.items()]
    wire.send([HELLO, langgraph.version.__version__, ".".join(map(str, sys.version_info[:3])), problems])


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass
