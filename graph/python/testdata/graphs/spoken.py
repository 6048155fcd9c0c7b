"""Random messages of models, as LangChain makes events of them, made chunks again: LangChain has to make the same events of those."""
from __future__ import annotations

import random
from typing import Any

from langchain_core.language_models._compat_bridge import chunks_to_events
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict
from understudy_worker.transformers import Spoken


def some_words(rng: random.Random) -> str:
    return "".join(rng.choice("aä😀\n\"\\ ") for _ in range(rng.randrange(1, 5)))


def a_message(rng: random.Random) -> list[AIMessageChunk]:
    """Blocks one after the other or interleaved, as providers send them."""
    about: dict[str, Any] = rng.choice([{}, {"model_provider": "fake", "model_name": "m"}, {"model_name": "m"}])
    pieces: list[list[AIMessageChunk]] = []
    for index in range(rng.randrange(0, 4)):
        match rng.randrange(4):
            case 0:
                kinds = [{"type": "text", "text": some_words(rng), "index": index} for _ in range(rng.randrange(1, 4))]
                if rng.random() < 0.3:
                    kinds.append({"type": "text", "text": "", "index": index, "extras": {"signature": some_words(rng)}})
                pieces.append([AIMessageChunk(content=[k]) for k in kinds])
            case 1:
                kinds = [{"type": "reasoning", "reasoning": some_words(rng), "index": index} for _ in range(rng.randrange(1, 4))]
                if rng.random() < 0.3:
                    kinds.append({"type": "reasoning", "reasoning": "", "index": index, "extras": {"signature": "s"}})
                pieces.append([AIMessageChunk(content=[k]) for k in kinds])
            case 2:
                args = rng.choice(['{"q": "' + "x" * rng.randrange(9) + '"}', "", "{broken", "[1]"])
                at = rng.randrange(len(args) + 1)
                call = {"name": "search", "id": f"call_{index}", "args": args[:at], "index": index}
                pieces.append([AIMessageChunk(content="", tool_call_chunks=[call]),
                               AIMessageChunk(content="", tool_call_chunks=[{"name": None, "id": None, "args": args[at:], "index": index}])])
            case 3:
                pieces.append([AIMessageChunk(content=some_words(rng)) for _ in range(rng.randrange(1, 4))] if index == 0 else
                              [AIMessageChunk(content=[{"type": "text", "text": some_words(rng), "index": index}])])
    chunks = []
    while any(pieces):
        chunks.append((pieces[0] if rng.random() < 0.7 and pieces[0] else rng.choice([p for p in pieces if p])).pop(0))
        pieces = [p for p in pieces if p] or [[]]
    if rng.random() < 0.3:
        chunks.append(AIMessageChunk(content=[{"type": "image", "url": "https://example.com/a.png", "index": 9}]))
    if rng.random() < 0.3:
        chunks.append(AIMessageChunk(content="", additional_kwargs={"signature": "s"}))
    if rng.random() < 0.7:
        chunks.append(AIMessageChunk(content="", response_metadata={"finish_reason": "stop", **about}, usage_metadata={
            "input_tokens": 1, "output_tokens": rng.randrange(9), "total_tokens": 9, "input_token_details": {"cache_read": 1}}))
    start = AIMessageChunk(content="", response_metadata=dict(about))
    return [start, *chunks]


def events(chunks: list[AIMessageChunk]) -> list[dict]:
    return [plain(e) for e in chunks_to_events(iter(ChatGenerationChunk(message=c) for c in chunks), message_id="m")]


def plain(event: dict) -> dict:
    """An event without the index that its provider gave a block."""
    content = event.get("content")
    return {**event, "content": {k: v for k, v in content.items() if k != "index"}} if content else dict(event)


class State(TypedDict, total=False):
    seed: int
    count: int
    checked: int


def check(state: State) -> State:
    for seed in range(state["seed"], state["seed"] + state["count"]):
        chunks = a_message(random.Random(seed))
        want = [dict(e) for e in chunks_to_events(iter(ChatGenerationChunk(message=c) for c in chunks), message_id="m")]
        spoken = Spoken("m", {})
        again = [c for e in want if (c := spoken.chunk(e)) is not None]
        got = events(again)
        if got != [plain(e) for e in want]:
            raise AssertionError(f"seed {seed}:\nwant {[plain(e) for e in want]}\ngot  {got}\nchunks {chunks}")
    return {"checked": state["count"]}


_b = StateGraph(State)
_b.add_node("check", check)
_b.add_edge(START, "check")
_b.add_edge("check", END)
graph = _b.compile()
