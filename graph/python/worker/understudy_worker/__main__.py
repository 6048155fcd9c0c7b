"""Entry point. The server passes the socket as a descriptor, and what to load as JSON in the environment."""
from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

CONFIG = "UNDERSTUDY_WORKER"


def main(fd: int = 3) -> None:
    # Graphs start processes of their own: those need neither the setting nor the socket.
    options = json.loads(os.environ.pop(CONFIG))
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
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
    while True:
        try:
            loop.run_forever()
            break
        except (SystemExit, KeyboardInterrupt):
            # A node called sys.exit: that is its own run's failure.
            if first.done() and not first.cancelled() and first.exception() is not None:
                raise
    os._exit(0)


async def serve(sock: socket.socket, options: dict) -> None:
    from . import errors, logs, serde
    from .graphs import Registry
    from .runs import Runner
    from .wire import ANSWER, CALL, CANCEL, HELLO, LOG, PAUSE, PING, PONG, RUN, Wire

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

    _, wire = await loop.create_connection(lambda: Wire(on_message), sock=sock)
    logs.install(loop, lambda *line: wire.send([LOG, *line]))
    registry = Registry(options["graphs"], options["dir"])
    # Here, on the loop: modules may start tasks when they are imported. The server does not ping before the greeting.
    registry.load()
    runner = Runner(wire, registry, serde.make(options.get("serde")))
    import langgraph.version

    problems = [[g, type(e).__name__, str(e)[:4096], errors.detail(e)] for g, e in registry.problems.items()]
    wire.send([HELLO, langgraph.version.__version__, ".".join(map(str, sys.version_info[:3])), problems])


if __name__ == "__main__":
    threading.current_thread().name = "worker"
    main()
