"""Event streaming of graphs that were compiled with transformers of their stream."""
from __future__ import annotations

import pytest
from test_event_streaming import Stream, run_once, texts


def stream_of(graph: str, message: str, channels: list[str] | None = None) -> Stream:
    _, _, stream = run_once(graph, {"messages": [{"role": "user", "content": message}]}, *([channels] if channels else []))
    return stream


@pytest.mark.parametrize("graph", ["masked", "masked_agent"])
def test_a_transformer_changes_words_before_clients_see_them(graph):
    stream = stream_of(graph, "say 4")
    of_model = [e for e in stream.of("messages") if not str(e["params"]["data"].get("id", "")).startswith("whole")]
    deltas = [e["params"]["data"]["delta"]["text"] for e in of_model if e["params"]["data"]["event"] == "content-block-delta"]
    assert deltas[:4] == ["w0", " w1", " --", " w3"]
    finished = [e["params"]["data"]["content"]["text"] for e in of_model if e["params"]["data"]["event"] == "content-block-finish"]
    assert finished[0] == "w0 w1 -- w3"
    # Nodes and their state are not its business.
    assert any("w2" in str(message["content"]) for message in stream.of("values")[-1]["params"]["data"]["messages"])
    assert stream.root_lifecycle() == ["running", "completed"]


def test_a_channel_with_a_name_is_custom_and_can_be_selected():
    channels = ["lifecycle", "messages", "custom"]
    stream = stream_of("masked", "say 4", channels)
    found = {"name": "found", "payload": {"word": "w2", "at": []}}
    sent = [e["params"]["data"] for e in stream.of("custom")]
    assert found in sent and sent.count(found) == 1
    assert {"name": "found", "payload": {"word": "w2", "at": []}} in [e["params"]["data"] for e in stream_of("masked", "say 4", ["lifecycle", "custom:found"]).of("custom")]
    assert stream_of("masked", "say 4", ["lifecycle", "custom:lost"]).of("custom") == []
    # It is sent before the event of which it was made.
    order = [e["params"]["data"] for e in stream.events if e["method"] in ("custom", "messages")]
    after = next(d for d in order[order.index(found):] if d.get("event"))
    assert after["delta"]["text"] == " --"


def test_what_a_transformer_hides_is_never_sent():
    stream = stream_of("masked", "say 1", ["lifecycle", "custom", "values"])
    payloads = [e["params"]["data"].get("payload", e["params"]["data"]) for e in stream.of("custom")]  # LangGraph Server sends objects without the schema's `payload`
    assert {"shown": True} in payloads and "hidden" not in payloads


def test_calls_of_tools_come_whole_through_transformers():
    stream = stream_of("masked_agent", 'call search {"q":"cats"}')
    blocks = [e["params"]["data"]["content"] for e in stream.of("messages") if e["params"]["data"]["event"] == "content-block-finish"]
    assert {k: v for k, v in blocks[0].items() if k != "index"} == {"type": "tool_call", "id": "call_1", "name": "search", "args": {"q": "cats"}}
    assert [e["params"]["data"]["event"] for e in stream.of("tools")] == ["tool-started", "tool-finished"]
    assert texts(stream, []).endswith("tool said: Found 10 results for cats")
