"""Which LangGraph the graphs have: what earlier releases than the newest leave to the worker."""
from __future__ import annotations

import re

from langgraph.version import __version__

_RELEASE = tuple(int(n) for n in re.findall(r"\d+", __version__)[:3])

# Whether a dict is made into the context that a graph declares, a dataclass or a Pydantic model; else nodes get the dict.
MAKES_CONTEXT = _RELEASE >= (0, 6, 2)
# Whether interrupts are shown in mode values; else they are in updates alone.
VALUES_ASK = _RELEASE >= (0, 6, 8)
