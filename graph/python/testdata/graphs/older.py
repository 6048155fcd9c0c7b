"""Graphs in a LangGraph as it was before 0.6.8: it shows interrupts in mode updates alone."""
from langgraph.pregel import _loop
from understudy_worker import streams

streams.VALUES_ASK = False
emit = _loop.PregelLoop._emit


def without_questions(self, mode, values, *args, **kwargs):
    if mode == "values" and self.stream is not None and mode in self.stream.modes:
        shown = [v for v in values(*args, **kwargs) if not (isinstance(v, dict) and "__interrupt__" in v)]
        return emit(self, mode, lambda: iter(shown))
    return emit(self, mode, values, *args, **kwargs)


_loop.PregelLoop._emit = without_questions

from graphs import asking, nested  # noqa: E402, F401
