"""Ids of checkpoints carry a time, and the newest of a thread is the greatest. LangGraph keeps them rising within a process; when the clock
is set back between two processes, or a thread came from a machine whose clock is ahead, the next turn would be lost behind the last."""
from __future__ import annotations

from langgraph.checkpoint.base import id as ids

_LAST = "_last_v6_timestamp"
_KEEPS = hasattr(ids, _LAST)


def after(checkpoint_id: str) -> None:
    """Ids that are made from now on are greater."""
    if not _KEEPS:
        return
    try:
        number = int(checkpoint_id.replace("-", ""), 16)
    except ValueError:
        return
    if number >> 76 & 0xF != 6:
        return
    # Sixty bits of 100 ns: the upper 48 before the version, the lower 12 after it.
    time = (number >> 80) << 12 | number >> 64 & 0xFFF
    last = getattr(ids, _LAST)
    if (last is None or last < time) and time < 1 << 59:
        setattr(ids, _LAST, time)
