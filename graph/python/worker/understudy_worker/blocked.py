"""A thread that notices when the event loop does not turn, and reports the code that holds it up.

All runs of a worker share its loop: one call that blocks delays every other run. The loop cannot report that itself, and neither can the
socket, which belongs to the loop: reports are lines on standard error that start with MARK, which the server reads. While graphs are
imported, before the loop runs, each report says how far that is.
"""
from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import linecache
import os
import sys
import threading
import time
import tokenize
from types import FrameType
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config

from .context import current

# The server knows it too (blocked.go).
MARK = "\x1eunderstudy blocked "
# How long the loop may take for one turn, and the pause between two looks at it.
LIMIT, PAUSE = 1.0, 0.25
# A line this short is written whole, whatever else is written at the same time (PIPE_BUF), with room for escapes.
LONGEST = 4096
FRAMES = 6
# Characters of sources that are kept.
SOURCES = 4 << 20

_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STDLIB = os.path.dirname(os.__file__) + os.sep


class Watch(threading.Thread):
    """Watches the loop of the thread that makes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folders: list[str]) -> None:
        super().__init__(name="understudy-watch", daemon=True)
        self._loop, self._thread = loop, threading.get_ident()
        self._folders = tuple(os.path.join(os.path.abspath(f), "") for f in folders)
        self._out = os.dup(2)  # graphs may close or replace theirs
        self.importing = False
        self._began = time.time()
        self._sources: dict[str, list[str]] = {}

    def loaded(self) -> None:
        """Keeps the sources of the user's modules: they may be saved again while this process runs the code before."""
        self.importing = False
        room = SOURCES
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or not file.endswith(".py") or not self._ours(file):
                continue
            try:
                with tokenize.open(file) as f:
                    text = f.read(room + 1)
            except (OSError, SyntaxError, UnicodeError):
                continue
            if (room := room - len(text)) < 0:
                return
            self._sources[file] = text.splitlines()

    def run(self) -> None:
        while True:
            turned = threading.Event()
            began = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:
                return  # the loop is closed
            found: dict[str, Any] | None = None
            while not turned.wait(LIMIT if found is None else PAUSE):
                if self.importing:
                    if at := self._look():
                        self._report({**at, "stack": [], "importing": True})
                # Without a frame the loop's thread only waits for the processor. It may be in a node the next time.
                elif found is None and (found := self._look()) is not None:
                    self._report({**found, "seconds": round(time.monotonic() - began, 3)})
            took = time.monotonic() - began
            if found is not None:
                self._report({**found, "stack": [], "seconds": round(took, 3), "over": True})
            time.sleep(PAUSE)

    def _look(self) -> dict[str, Any] | None:
        frame = sys._current_frames().get(self._thread)
        task = asyncio.current_task(self._loop)
        frames = []
        while frame is not None and not frame.f_code.co_filename.startswith("<understudy"):
            frames.append(frame)
            frame = frame.f_back
        if not frames or task is None and not self.importing and not any(map(self._own, frames)):
            return None
        # Innermost first. The user's own code says most, then a library's, and the standard library's least.
        at = next(filter(self._own, frames), None) or next((f for f in frames if not _standard(f)), frames[0])
        out = {"file": at.f_code.co_filename, "line": at.f_lineno, "code": self._code(at), "inside": _module(frames[0])}
        out["stack"] = [f"{f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in frames[:FRAMES]]
        if task is not None and (context := _context(task)) is not None:
            if who := context.get(current):
                out["run"], out["thread"] = who
            config = context.get(var_child_runnable_config) or {}
            out["node"] = str((config.get("metadata") or {}).get("langgraph_node") or "")
        return out

    def _own(self, frame: FrameType) -> bool:
        return self._ours(frame.f_code.co_filename)

    def _ours(self, file: str) -> bool:
        if file.startswith("<"):
            return False  # "<frozen importlib._bootstrap>" is no file of the current folder
        file = os.path.abspath(file)
        return file.startswith(self._folders) and not any(part in file for part in _LIBRARIES)

    def _code(self, frame: FrameType) -> str:
        """The line that runs, as it was loaded; "" when that is unknown because the file has changed since."""
        file, number = frame.f_code.co_filename, frame.f_lineno
        if (lines := self._sources.get(file)) is not None:
            return lines[number - 1].strip()[:200] if number <= len(lines) else ""
        try:
            if os.stat(file).st_mtime > self._began:
                return ""
        except OSError:
            pass  # of an archive, or gone
        return linecache.getline(file, number, frame.f_globals).strip()[:200]

    def _report(self, found: dict[str, Any]) -> None:
        for key in ("stack", "code", "file"):
            text = json.dumps(found)
            if len(text) + len(MARK) + 2 <= LONGEST:
                break
            found[key] = [] if key == "stack" else found[key][:200]
        try:
            os.write(self._out, f"\n{MARK}{text}\n".encode())
        except OSError:
            pass


def _context(task: asyncio.Task) -> contextvars.Context | None:
    if hasattr(task, "get_context"):  # since 3.12
        return task.get_context()
    return next((o for o in gc.get_referents(task) if isinstance(o, contextvars.Context)), None)


def _standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(("<frozen", _STDLIB)) and not any(part in file for part in _LIBRARIES)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "")
