"""Reports where this process is while it loads a part for long: an import that waits for a server, or a lifespan that does not begin."""
from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from . import codec

# Begins a line of stderr that is for the server, which cannot be reached over the socket while the loop's thread is in an import. loading.go has the same.
MARK = b"\x1eunderstudy is loading "
AGAIN = 30.0


class Watch:
    """Writes which part begins to load, and from `after` seconds behind the first on where that is, in a thread, until it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: str, after: float) -> None:
        self._loop, self._directory, self._after = loop, os.path.join(os.path.realpath(directory), ""), after
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._part = ""
        self._before = (0.0, 0.0, 0.0)

    def begin(self, part: str) -> None:
        """What comes next is the deployment's own code. The time before, of the interpreter and of libraries, is not its fault."""
        first, self._part = not self._part, part
        self._write({"part": part, "began": True})
        if first:
            self._before = _spent()
            threading.Thread(target=self._run, name="slow", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        wait = self._after
        while not self._over.wait(wait):
            wait = AGAIN
            try:
                took, cpu, queued = (now - then for now, then in zip(_spent(), self._before))
                self._write({"part": self._part, "place": self._place(), "took": took, "cpu": cpu, "queued": queued})
            except Exception:
                return  # the server reports without a place

    def _write(self, report: dict[str, Any]) -> None:
        try:
            os.write(2, b"\n" + MARK + codec.dumps(report) + b"\n")
        except OSError:
            pass  # the server reports without it

    def _place(self) -> str:
        """file:line of the deployment's own code, the innermost; "" when none runs."""
        for frame in [*self._suspended(), *_outwards(sys._current_frames().get(self._main))]:
            name = frame.f_code.co_filename
            if name.startswith("<"):
                continue  # of this package
            name = os.path.realpath(name)
            if name.startswith(self._directory) and "site-packages" not in name:
                return f"{name}:{frame.f_lineno}"
        return ""

    def _suspended(self) -> Iterator[FrameType]:
        """Frames of coroutines that wait, the innermost of each task first."""
        for task in asyncio.all_tasks(self._loop):
            frames: list[FrameType] = []
            step: Any = task.get_coro()
            while step is not None and len(frames) < 100:
                if (frame := _first(step, "cr_frame", "gi_frame", "ag_frame")) is not None:
                    frames.append(frame)
                    step = _first(step, "cr_await", "gi_yieldfrom", "ag_await")
                else:  # the iterator of a coroutine or an asynchronous generator, which does not say of which
                    step = next((r for r in gc.get_referents(step) if _first(r, "cr_frame", "gi_frame", "ag_frame") is not None), None)
            yield from reversed(frames)


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
