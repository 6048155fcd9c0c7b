"""Gives Python workers of a server whose clock is wrong the same wrong time: see faults.shifted."""
import os
import time

_path, _now, _now_ns = os.environ["SHIFT_CLOCK_FILE"], time.time, time.time_ns


def _ahead() -> int:
    try:
        with open(_path) as f:
            return int(f.read() or 0)
    except (OSError, ValueError):
        return 0


time.time = lambda: _now() + _ahead()
time.time_ns = lambda: _now_ns() + _ahead() * 1_000_000_000
