"""Synchronous functions of a deployment, in threads."""
from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import fatal

THREADS = 64
# So many threads whose call was given up are too many to go on: nothing ends them but the end of the process.
MOST_ABANDONED = THREADS // 2

_lock = threading.Lock()
_abandoned = 0
# The threads in which functions that tasks have called are at work.
at_work: dict[asyncio.Task, int] = {}


def executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="handler")


class Slow(Exception):
    """A function did not end in time."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Ends what the current task awaits here when it takes longer, by Slow: also when it makes something else of that, as code does that catches everything. What does not
    await is not ended, and what it returns too late does not count."""
    task = asyncio.current_task()
    over = False

    def end() -> None:
        nonlocal over
        over = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, end)
    try:
        yield
    except (Exception, asyncio.CancelledError):
        if not over:
            raise
    finally:
        timer.cancel()
    if over:
        if hasattr(task, "uncancel"):  # Python 3.11
            task.uncancel()
        raise Slow


def is_async(function: Callable) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


async def call(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function of either kind."""
    if is_async(function):
        return await function(*args, **kwargs)
    context = contextvars.copy_context()
    state = {"began": False, "done": False, "abandoned": False}
    task = asyncio.current_task()

    def work() -> Any:
        global _abandoned
        with _lock:
            state["began"] = True
            at_work[task] = threading.get_ident()
        try:
            return context.run(function, *args, **kwargs)
        except StopIteration as exc:
            raise RuntimeError("the function raised StopIteration") from exc  # which a future cannot hold
        finally:
            with _lock:
                if at_work.get(task) == threading.get_ident():  # else it was given up, and the task has called another
                    del at_work[task]
                state["done"] = True
                if state["abandoned"]:
                    _abandoned -= 1

    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        result = await future
    except asyncio.CancelledError:
        _abandon(state)
        raise
    return await result if inspect.isawaitable(result) else result


def _abandon(state: dict[str, bool]) -> None:
    global _abandoned
    with _lock:
        if state["done"] or not state["began"]:
            return
        state["abandoned"] = True
        _abandoned += 1
        too_many = _abandoned > MOST_ABANDONED
    if too_many:
        fatal.end(RuntimeError(f"{_abandoned} synchronous handlers did not return in time and still run; this process ends, and another one takes over"))
