"""Reports where this process is while it loads a part for long, or a handler does not answer: an import that waits for a server, or a lifespan that does not begin."""
from __future__ import annotations

import asyncio
import gc
import inspect
import linecache
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

from . import codec, threads

# Each begins a line of stderr that is for the server, which cannot be reached over the socket while the loop's thread is in an import or a handler. loading.go has the same.
MARK = b"\x1eunderstudy is loading "
WAITING = b"\x1eunderstudy waits for "
BLOCKED = b"\x1eunderstudy loop blocked "
# How the handlers begin that a question needs.
HANDLERS = {
    "authenticate": "@auth.authenticate", "admit": "@auth.", "decide": "@auth.on", "wrap": "@encryption.encrypt", "unwrap": "@encryption.decrypt",
    "readable": "@encryption.encrypt.json", "encryption_context": "@encryption.context",
}
MOST, TRIED = 8, 64  # handlers that are reported at once, and calls that are looked at for them


class Places:
    """Finds the deployment's own code in stacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folders: list[str]) -> None:
        self.loop, self._main = loop, threading.get_ident()
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)

    def first(self, frames: Iterable[FrameType]) -> str:
        """file:line of the first frame that is the deployment's own; "" when none is."""
        for frame in frames:
            name = frame.f_code.co_filename
            if name.startswith("<"):
                continue  # of this package
            name = os.path.realpath(name)
            if name.startswith(self._folders) and "site-packages" not in name:
                return f"{name}:{frame.f_lineno}"
        return ""

    def loading(self) -> str:
        return self.first([*(f for task in self.tasks() for f in suspended(task)), *_outwards(sys._current_frames().get(self._main))])

    def at_work(self) -> list[FrameType]:
        """Frames of the loop's thread, the innermost first."""
        return list(_outwards(sys._current_frames().get(self._main)))

    def blocking(self) -> str:
        """file:line of what a task does in the loop's thread; "" when it waits for the processor only."""
        frames = self.at_work()
        if asyncio.current_task(self.loop) is None or not frames:
            return ""
        return self.first(frames) or next((f"{f.f_code.co_filename}:{f.f_lineno}" for f in frames if not f.f_code.co_filename.startswith("<")), "")

    def tasks(self) -> set[asyncio.Task]:
        return asyncio.all_tasks(self.loop)


class Loop(threading.Thread):
    """Writes once where the code is that keeps the event loop busy for `after` seconds: all requests wait for it. It lives as long as the process."""

    PAUSE = 0.25

    def __init__(self, places: Places, after: float) -> None:
        super().__init__(name="loop", daemon=True)
        self._places, self._after = places, after
        self.blocked = False
        self.start()

    def run(self) -> None:
        while True:
            turned, began = threading.Event(), time.monotonic()
            try:
                self._places.loop.call_soon_threadsafe(turned.set)
            except RuntimeError:
                return  # it is closed
            while not turned.wait(self._after if not self.blocked else self.PAUSE):
                if not self.blocked and (place := self._places.blocking()):
                    self.blocked = True
                    _write(BLOCKED, {"place": place, "code": linecache.getline(*_parts(place)).strip()[:200], "seconds": time.monotonic() - began})
            self.blocked = False
            time.sleep(self.PAUSE)


def _parts(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line)


class Watch:
    """Writes which part begins to load, and from `after` seconds behind the first on where that is, in a thread, until it is stopped."""

    def __init__(self, places: Places, after: float, again: float) -> None:
        self._places, self._after, self._again = places, after, again
        self._over = threading.Event()
        self._part, self._stage = "", ""
        self._before = (0.0, 0.0, 0.0)
        self._reported = False

    def begin(self, part: str, stage: str = "") -> None:
        """What comes next is the deployment's own code. The time before, of the interpreter and of libraries, is not its fault."""
        first, self._part, self._stage = not self._part, part, stage
        _write(MARK, {"part": part, "stage": stage, "began": True})
        if first:
            self._before = _spent()
            threading.Thread(target=self._run, name="slow", daemon=True).start()

    def stop(self) -> None:
        self._over.set()
        if self._reported:
            _write(MARK, {"part": self._part, "stage": self._stage, "over": True, **self._spent()})

    def _spent(self) -> dict[str, float]:
        took, cpu, queued = (now - then for now, then in zip(_spent(), self._before))
        return {"took": took, "cpu": cpu, "queued": queued}

    def _run(self) -> None:
        wait = self._after
        while not self._over.wait(wait):
            wait = self._again
            try:
                _write(MARK, {"part": self._part, "stage": self._stage, "place": self._places.loading(), **self._spent()})
                self._reported = True
            except Exception:
                return  # the server reports without a place


class Calls:
    """Writes which handlers have not answered for `after` seconds, and where they are, in a thread that lives as long as the process."""

    def __init__(self, places: Places, calls: dict[int, asyncio.Task], names: dict[CodeType, str], after: float, loop: Loop) -> None:
        self._places, self._calls, self._names, self._after, self._loop = places, calls, names, after, loop
        threading.Thread(target=self._run, name="calls", daemon=True).start()

    def _run(self) -> None:
        seen: dict[asyncio.Task, float] = {}
        while True:
            time.sleep(self._after / 4)
            now = time.monotonic()
            try:
                # What blocks the loop is not a handler, or Loop has said of it where it is. A call that has not begun has no handler that could be slow.
                if self._loop.blocked and not any(f.f_code in self._names for f in self._places.at_work()):
                    seen = {}
                    continue
                numbers = {task: number for number, task in list(self._calls.items()) if task.get_name() in HANDLERS}
                seen = {task: seen.get(task, now) for task in numbers}
                late = [(task, now - began) for task, began in seen.items() if now - began >= self._after][:TRIED]
                elsewhere = self._elsewhere(numbers) if late else []
                found: dict[tuple[str, str, str], tuple[float, list[int]]] = {}
                for task, seconds in late:
                    key = (task.get_name(), *self._where(task, elsewhere))
                    if key in found or len(found) < MOST:
                        found.setdefault(key, (seconds, []))[1].append(numbers[task])
            except Exception:
                continue  # something changed meanwhile
            for (do, handler, place), (seconds, calls) in found.items():
                _write(WAITING, {"do": do, "handler": handler, "place": place, "seconds": seconds, "calls": calls})

    def _where(self, task: asyncio.Task, elsewhere: list[tuple[str, str]]) -> tuple[str, str]:
        """The handler that a question waits for, and the line that it is at."""
        begin, own = HANDLERS[task.get_name()], suspended(task)
        for name, place in [*self._handlers(own), *self._handlers(_thread_of(task)), *elsewhere]:
            if name.startswith(begin):
                return name, place
        return "", self._places.first(own)

    def _elsewhere(self, calls: Iterable[asyncio.Task]) -> list[tuple[str, str]]:
        """The handlers at work where it is not known for which call: in tasks of their own, in which keys are decrypted, and in threads that those use."""
        known = {threads.at_work.get(task) for task in calls}
        stacks = [*(list(_outwards(frame)) for thread, frame in sys._current_frames().items() if thread not in known), *map(suspended, self._places.tasks().difference(calls))]
        return [found for frames in stacks for found in self._handlers(frames)]

    def _handlers(self, frames: list[FrameType]) -> Iterator[tuple[str, str]]:
        """The handlers in a stack, each with the line that it is at."""
        for frame in frames:
            if name := self._names.get(frame.f_code):
                yield name, self._places.first(frames) or f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _thread_of(task: asyncio.Task) -> list[FrameType]:
    """Frames of the thread in which a function that a task has called is at work, the innermost first."""
    return list(_outwards(sys._current_frames().get(threads.at_work.get(task, 0))))


def codes(names: dict[str, Any]) -> dict[CodeType, str]:
    """Handlers by their code; None is no handler."""
    out = {}
    for name, function in names.items():
        function = inspect.unwrap(function) if callable(function) else function
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)
        if isinstance(code, CodeType):
            out.setdefault(code, name)
    return out


def suspended(task: asyncio.Task) -> list[FrameType]:
    """Frames of coroutines in which a task waits, the innermost first."""
    frames: list[FrameType] = []
    step: Any = task.get_coro()
    while step is not None and len(frames) < 100:
        if (frame := _first(step, "cr_frame", "gi_frame", "ag_frame")) is not None:
            frames.append(frame)
            step = _first(step, "cr_await", "gi_yieldfrom", "ag_await")
        else:  # the iterator of a coroutine or an asynchronous generator, which does not say of which
            step = next((r for r in gc.get_referents(step) if _first(r, "cr_frame", "gi_frame", "ag_frame") is not None), None)
    return frames[::-1]


def _write(mark: bytes, report: dict[str, Any]) -> None:
    try:
        os.write(2, b"\n" + mark + codec.dumps(report) + b"\n")
    except OSError:
        pass  # the server reports without it


def _spent() -> tuple[float, float, float]:
    """The time, that of the processor which this process used, and for how long its main thread was ready to run and had none, in seconds."""
    queued = 0.0
    try:
        with open(f"/proc/self/task/{os.getpid()}/schedstat") as file:
            queued = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        pass  # only Linux says it
    return time.monotonic(), time.process_time(), queued


def _first(thing: Any, *names: str) -> Any:
    """The first attribute that is there and not None."""
    return next((value for name in names if (value := getattr(thing, name, None)) is not None), None)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
