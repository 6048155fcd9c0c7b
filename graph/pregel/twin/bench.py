"""How long graph.ainvoke takes for the graphs of bench_test.go. Prints microseconds per run."""
from __future__ import annotations

import asyncio
import time
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class Counted(TypedDict, total=False):
    n: int


def echo():
    b = StateGraph(Counted)
    b.add_node("echo", lambda s: {"n": s.get("n", 0) + 1})
    b.add_edge(START, "echo")
    b.add_edge("echo", END)
    return b.compile()


def loop(steps: int):
    b = StateGraph(Counted)
    b.add_node("step", lambda s: {"n": s.get("n", 0) + 1})
    b.add_edge(START, "step")
    b.add_conditional_edges("step", lambda s: "step" if s["n"] < steps else END, ["step", END])
    return b.compile()


async def measure(name: str, graph, count: int) -> None:
    for _ in range(count // 10):
        await graph.ainvoke({"n": 0})
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(count):
            await graph.ainvoke({"n": 0})
        best = min(best, (time.process_time() - start) / count)
    print(f"{name:8} {best * 1e6:8.0f} µs of CPU a run")


async def main() -> None:
    await measure("echo", echo(), 500)
    await measure("loop10", loop(10), 100)


asyncio.run(main())
