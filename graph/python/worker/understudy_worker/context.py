"""Which run the current code belongs to."""
from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class Current(NamedTuple):
    run_id: str
    thread_id: str


current: ContextVar[Current | None] = ContextVar("understudy_run", default=None)
