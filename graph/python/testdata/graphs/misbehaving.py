"""Graphs that harm the process they run in, each in its own way."""
from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    how: str
    size: int
    out: Any


def say(text: str) -> None:
    get_stream_writer()(text)


def recurse(n: int) -> int:
    return recurse(n + 1) + 1


def fork(seconds: float, group: bool) -> None:
    """A child that keeps all that it inherited."""
    if os.fork() == 0:
        if group:
            os.setsid()
        time.sleep(seconds)
        os._exit(0)


class Unpicklable:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __reduce__(self):
        raise TypeError("this cannot be kept")


async def act(state: State):
    how, size = state["how"], state.get("size", 0)
    if how in ("sleep", "spin", "spin in C"):
        # The loop is blocked until the file that `out` names is there.
        say("now")
        await asyncio.sleep(0.05)
        while not os.path.exists(state["out"]):
            if how == "sleep":
                time.sleep(0.01)
            elif how == "spin in C":
                sum(range(3_000_000))
    elif how == "exit":
        sys.exit(3)
    elif how == "import":
        import a_module_that_nobody_has  # noqa: F401
    elif how == "os exit":
        os._exit(4)
    elif how == "segfault":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "keyboard":
        raise KeyboardInterrupt
    elif how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.2)
    elif how == "base":
        raise BaseException("something of its own")
    elif how == "recursion":
        recurse(0)
    elif how == "group":
        raise BaseExceptionGroup("several", [ValueError("one"), KeyboardInterrupt()])
    elif how == "fork":
        fork(30, False)
        os._exit(5)
    elif how == "fork away":
        fork(3, True)
        os._exit(6)
    elif how == "multiprocessing":
        import multiprocessing

        p = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
        p.start()
        await asyncio.to_thread(p.join)
        return {"out": p.exitcode}
    elif how == "subprocess":
        return {"out": subprocess.run([sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], capture_output=True, text=True).stdout}
    elif how == "print":
        line = "x" * 99
        for _ in range(size // 100):
            print(line)
    elif how == "print without end":
        print("y" * size, end="")
    elif how == "write":
        block = (b"z" * 99 + b"\n") * 10_000
        for _ in range(size // len(block)):
            os.write(1, block)
            os.write(2, block)
    elif how == "log":
        import logging

        for i in range(size):
            logging.getLogger("mine").warning("line %d", i)
    elif how == "huge state":
        return {"out": "h" * size}
    elif how == "huge event":
        say("e" * size)
    elif how == "unserialisable":
        return {"out": Unpicklable()}
    elif how == "generator":
        return {"out": (i for i in range(3))}
    elif how == "itself":
        out: list = []
        out.append(out)
        return {"out": out}
    elif how == "deep":
        out = []
        for _ in range(size):
            out = [out]
        return {"out": out}
    elif how == "endless":
        i = 0
        while True:
            say("tick")
            await asyncio.sleep(0)
            i += 1
    elif how == "close":
        os.closerange(3, 256)
        await asyncio.sleep(30)
    elif how == "close output":
        os.close(1)
        os.close(2)
        print("into nothing")
    elif how == "environment":
        os.chdir("/")
        os.environ.clear()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout = sys.stderr = None
        sys.path.clear()
    elif how == "threads":
        for _ in range(size):
            threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
    elif how == "tasks":
        for _ in range(size):
            asyncio.ensure_future(asyncio.sleep(3600))
    elif how == "memory":
        held = bytearray(size)
        for i in range(0, size, 4096):
            held[i] = 1
        say("now")
        await asyncio.sleep(state.get("out") or 0)
    elif how == "exit handler":
        atexit.register(time.sleep, 3600)
        threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(30)
    elif how == "stop loop":
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.1)
    elif how == "cancel all":
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(1)
    return {"out": how}


def in_thread(state: State):
    how = state["how"]
    if how == "exit":
        sys.exit(3)
    if how == "keyboard":
        raise KeyboardInterrupt
    if how == "base":
        raise BaseException("something of its own")
    if how == "spin":
        say("now")
        while True:
            pass
    if how == "print":
        line = "x" * 99
        for _ in range(state["size"] // 100):
            print(line)
    return {"out": how}


def single(node):
    builder = StateGraph(State)
    builder.add_node("act", node)
    builder.add_edge(START, "act")
    builder.add_edge("act", END)
    return builder.compile()


graph = single(act)
threaded = single(in_thread)
