"""The end of a worker that cannot go on: it says why on its real standard error, which the server reads, and leaves.

A worker that lost one of its own tasks would otherwise stay, take part in nothing and hold its place.
"""
from __future__ import annotations

import asyncio
import os
import traceback


def end(exc: BaseException) -> None:
    """Does not return. The text is short and its last line is the error: the server shows it."""
    text = "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        pass  # a graph has closed it
    os._exit(1)  # threads of graphs must not hold it up


def watch(task: asyncio.Task) -> None:
    """The worker ends with the task when that fails: it is the worker's own, and nothing waits for it."""
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task) -> None:
    if not task.cancelled() and (exc := task.exception()) is not None:
        end(exc)
