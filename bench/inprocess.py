"""What the graphs do without a server: one process, LangGraph alone, InMemorySaver. Prints one JSON object.

  inprocess.py echo SECONDS          runs of echo, 16 at once, each on a thread of its own
  inprocess.py tokens SECONDS C      tokens of agent, C streams at once
  inprocess.py paced C TOKENS        C streams of so many tokens at once, 20 ms each: how much later than that they end
  inprocess.py turn MESSAGES         a turn of agent on a thread that has so many messages
"""
import asyncio
import json
import pathlib
import statistics
import sys
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "graphs"))
import graphs  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402


def config():
    return {"configurable": {"thread_id": str(uuid.uuid4())}}


async def many(c, seconds, one):
    """Calls one from c tasks and gives what it gave in all, per second."""
    end = time.perf_counter() + seconds
    total = 0

    async def loop():
        nonlocal total
        while time.perf_counter() < end:
            done = await one()  # apart: += would read the total before it waits
            total += done

    begun = time.perf_counter()
    await asyncio.gather(*(loop() for _ in range(c)))
    return total / (time.perf_counter() - begun)


async def echo(seconds):
    graph = graphs.echo
    graph.checkpointer = InMemorySaver()

    async def one():
        assert (await graph.ainvoke({"n": 41}, config()))["n"] == 42
        return 1

    await many(16, 0.5, one)
    return {"runs_per_s": await many(16, float(seconds), one)}


async def tokens(seconds, c):
    first = []

    async def one():
        n, begun = 0, time.perf_counter()
        async for _ in graphs.agent.astream({"messages": [("user", "say 1000")]}, config(), stream_mode="messages"):
            n += 1
            if n == 1:
                first.append(time.perf_counter() - begun)
        return n

    await many(int(c), 0.5, one)
    first.clear()
    rate = await many(int(c), float(seconds), one)
    return {"tokens_per_s": rate, "first_ms": statistics.median(first) * 1000}


async def paced(c, tokens):
    begun = time.perf_counter()

    async def one():
        async for _ in graphs.paced20.astream({"messages": [("user", f"say {tokens}")]}, config(), stream_mode="messages"):
            pass
        return time.perf_counter() - begun - (int(tokens) + 1) * 0.020

    lags = sorted(await asyncio.gather(*(one() for _ in range(int(c)))))
    return {"lag_p99_ms": lags[int(0.99 * (len(lags) - 1))] * 1000}


async def turn(messages):
    graph = graphs.agent
    graph.checkpointer = InMemorySaver()
    at = config()
    seeded = [(("user", "say 20") if i % 2 == 0 else ("ai", "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19")) for i in range(int(messages))]
    await graph.aupdate_state(at, {"messages": seeded}, as_node="model")
    took = []
    for _ in range(23):
        begun = time.perf_counter()
        async for _ in graph.astream({"messages": [("user", "say 20")]}, at, stream_mode="updates"):
            pass
        took.append(time.perf_counter() - begun)
    return {"turn_ms": statistics.median(took[3:]) * 1000}


if __name__ == "__main__":
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    print(json.dumps(run({"echo": echo, "tokens": tokens, "paced": paced, "turn": turn}[sys.argv[1]](*sys.argv[2:]))))
