"""The frame of a process: its options, its loop, and its end."""
from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from . import fatal, stall

CONFIG = "UNDERSTUDY_WORKER"


Prepare = Callable[[dict[str, Any], asyncio.AbstractEventLoop], tuple[Executor, Coroutine]]


def run(sock: socket.socket, prepare: Prepare) -> None:
    """Does not return. prepare gets the options and the loop before it runs, and returns what runs functions that block, and what the loop does first."""
    try:
        _run(sock, prepare)
    except BaseException as exc:
        fatal.end(exc)
    os._exit(0)


def _run(sock: socket.socket, prepare: Prepare) -> None:
    # The code of users starts processes of its own: those need neither the options nor the socket.
    options = json.loads(os.environ.pop(CONFIG))
    stall.install()
    sock.set_inheritable(False)
    # A forked child must not keep it open: when it closes, the server takes this process for ended.
    if hasattr(os, "register_at_fork"):
        fd = sock.fileno()
        os.register_at_fork(after_in_child=lambda: _close(fd))
    for path in reversed([options["dir"], *(options.get("paths") or [])]):
        if path in sys.path:
            sys.path.remove(path)
        sys.path.insert(0, path)
    try:
        import uvloop

        loop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    executor, serve = prepare(options, loop)
    asyncio.set_event_loop(loop)  # afterwards: asyncio.run in the code of users leaves none
    loop.set_default_executor(executor)
    first = loop.create_task(serve)
    fatal.watch(first)
    while True:
        try:
            loop.run_forever()
            break
        except (SystemExit, KeyboardInterrupt):
            # The code of users called sys.exit: that is the failure of its own run or request.
            if first.done() and not first.cancelled() and first.exception() is not None:
                raise


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass
