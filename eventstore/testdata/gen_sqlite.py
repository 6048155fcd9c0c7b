"""Writes sqlite.json.gz: databases that langgraph-checkpoint-sqlite leaves behind, row by row, and what a person saw of each conversation.

    python eventstore/testdata/gen_sqlite.py | gzip -9n > eventstore/testdata/sqlite.json.gz

Needs langchain, langgraph and langgraph-checkpoint-sqlite. No server took part: no run has an id, no task a path. Identifiers and times differ
from one run to the next, nothing else does.
"""

import base64
import json
import operator
import sys
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, MessagesState
from langgraph.types import Command


class Words(BaseChatModel):
    """Answers "say N" with N words."""

    @property
    def _llm_type(self):
        return "words"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer(messages)))])


def words(n):
    return " ".join(f"w{i}" for i in range(n))


def answer(messages):
    last = str(messages[-1].content)
    return words(int(last.split()[1])) if last.startswith("say ") else "a summary"


def langchain(saver):
    return create_agent(
        Words(), tools=[], checkpointer=saver,
        middleware=[SummarizationMiddleware(model=Words(), trigger=("messages", 6), keep=("messages", 2))],
    )


class State(MessagesState):
    summary: str
    summary_text: str
    context: dict[str, Any]
    notes: Annotated[list[str], operator.add]


def handmade(condense):
    """A graph whose own node condenses, from six messages on, all but the last two."""

    def build(saver):
        def shorten(state):
            ms = state["messages"]
            return condense(state, ms[:-2], ms[-2:]) if len(ms) >= 6 else {}

        g = StateGraph(State)
        g.add_node("shorten", shorten)
        g.add_node("model", lambda s: {"messages": [AIMessage(answer(s["messages"]))]})
        g.add_edge(START, "shorten")
        g.add_edge("shorten", "model")
        g.add_edge("model", END)
        return g.compile(checkpointer=saver)

    return build


def how_to(state, old, kept):
    """LangGraph's how-to: RemoveMessage for each, the text in a channel."""
    return {"summary": f"{len(old)} and before", "messages": [RemoveMessage(m.id) for m in old]}


def deerflow(state, old, kept):
    return {"summary_text": f"{len(old)} and before", "messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *kept]}


def in_front(state, old, kept):
    return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage(f"so far {len(old)}"), *kept]}


def langmem(state, old, kept):
    """A running summary: one system message that goes on, and what it knows in a channel."""
    text = f"so far {len(old)}, " + (state.get("context") or {}).get("text", "nothing before")
    return {
        "context": {"text": text, "ids": [m.id for m in old]},
        "messages": [RemoveMessage(REMOVE_ALL_MESSAGES), SystemMessage(text, id="running-summary"), *kept],
    }


class Talk:
    def __init__(self, build):
        self.context = SqliteSaver.from_conn_string(":memory:")
        self.saver = self.context.__enter__()
        self.graph = build(self.saver)
        self.config = {"configurable": {"thread_id": "t"}}

    def say(self, *ns, config=None, before=()):
        for n in ns:
            self.graph.invoke({"messages": [*before, HumanMessage(f"say {n}")]}, config or self.config, durability="sync")
        return self

    def update(self, *messages, config=None):
        self.graph.update_state(config or self.config, {"messages": list(messages)})
        return self

    def messages(self):
        return self.graph.get_state(self.config).values["messages"]

    def when(self, ok):
        return next(s for s in self.graph.get_state_history(self.config) if not s.next and ok(s.values.get("messages", [])))

    def rows(self):
        def b64(v):
            return base64.b64encode(v).decode()

        cur = self.saver.conn.cursor()
        return {
            "checkpoints": [
                {"id": i, "parent": p or "", "type": t, "checkpoint": b64(c), "metadata": json.loads(m)}
                for i, p, t, c, m in cur.execute(
                    "SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints WHERE checkpoint_ns = '' ORDER BY checkpoint_id"
                )
            ],
            "writes": [
                {"id": i, "task": t, "idx": x, "channel": c, "type": k, "value": b64(v)}
                for i, t, x, c, k, v in cur.execute(
                    "SELECT checkpoint_id, task_id, idx, channel, type, value FROM writes WHERE checkpoint_ns = '' AND channel = 'messages' ORDER BY 1, 2, 3"
                )
            ],
        }


def turns(*ns):
    return [text for n in ns for text in (f"say {n}", words(n))]


def marked(texts, *markers):
    """markers, each (index, text), from the last to the first."""
    texts = list(texts)
    for at, text in markers:
        texts.insert(at, text)
    return texts


LC = "Here is a summary of the conversation to date:\n\na summary"


def twice():
    return Talk(langchain).say(1, 2, 3, 4, 5, 6, 7), marked(turns(1, 2, 3, 4, 5, 6, 7), (9, f"[4: {LC}]"), (5, f"[5: {LC}]"))


def shortened(condense, *texts):
    (first, second) = texts
    return Talk(handmade(condense)).say(1, 2, 3, 4, 5, 6, 7), marked(turns(1, 2, 3, 4, 5, 6, 7), (9, f"[4: {second}]"), (5, f"[5: {first}]"))


def channel():
    return shortened(how_to, "5 and before", "4 and before")


def text():
    return shortened(deerflow, "5 and before", "4 and before")


def front():
    return shortened(in_front, "so far 5", "so far 5")


def running():
    return shortened(langmem, "so far 5, nothing before", "so far 5, so far 5, nothing before")


def deleted():
    """Deleted by a state update, by a run's input, and by a command."""
    t = Talk(langchain).say(1, 2)
    t.update(RemoveMessage(t.messages()[0].id))
    t.say(3, before=[RemoveMessage(t.messages()[0].id)])
    t.graph.invoke(Command(update={"messages": [RemoveMessage(t.messages()[0].id)]}, goto="model"), t.config, durability="sync")
    return t, ["w0 w1", "say 3", "w0 w1 w2", "a summary"]


def edited():
    t = Talk(langchain).say(1, 2)
    t.update(AIMessage("edited", id=t.messages()[3].id))
    t.say(3, 4)
    texts = turns(1, 2, 3, 4)
    texts[3] = "edited"
    return t, marked(texts, (5, f"[5: {LC}]"))


def travelled():
    t = Talk(langchain).say(1, 2, 3, 4)
    t.say(9, config=t.when(lambda ms: len(ms) == 4 and ms[0].content == "say 1").config)
    return t, turns(1, 2, 9)


def copied():
    t = Talk(langchain).say(1, 2, 3, 4)
    at = t.when(lambda ms: any(m.additional_kwargs.get("lc_source") for m in ms))
    t.graph.update_state(at.config, None, as_node="__copy__")
    return t, marked(turns(1, 2, 3, 4), (5, f"[5: {LC}]"))


def tools():
    t = Talk(handmade(in_front)).say(1)
    call = {"name": "look", "args": {"at": "it"}, "id": "c1", "type": "tool_call"}
    t.update(AIMessage("", tool_calls=[call]), ToolMessage("found", tool_call_id="c1"))
    return t.say(2, 3), marked(["say 1", words(1), "", "found", *turns(2, 3)], (5, "[5: so far 5]"))


def main():
    out = {}
    for make in (twice, channel, text, front, running, deleted, edited, travelled, copied, tools):
        t, want = make()
        if "-v" in sys.argv:
            for s in reversed(list(t.graph.get_state_history(t.config))):
                print(make.__name__, s.metadata["source"], [m.content for m in s.values.get("messages", [])], file=sys.stderr)
        out[make.__name__] = {**t.rows(), "want": want}
    json.dump(out, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


main()
