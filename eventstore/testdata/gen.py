"""Writes conversations.json: checkpoints that langgraph stores when langchain's SummarizationMiddleware works, and what a person should see.

    python eventstore/testdata/gen.py > eventstore/testdata/conversations.json

Needs langchain and langgraph. Identifiers differ from one run to the next, nothing else does.
"""

import base64
import json
import sys

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver


class Words(BaseChatModel):
    """Answers "say N" with N words."""

    @property
    def _llm_type(self):
        return "words"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        last = str(messages[-1].content)
        text = " ".join(f"w{i}" for i in range(int(last.split()[1]))) if last.startswith("say ") else "a summary"
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


class Recorder(InMemorySaver):
    """Keeps what a server's saver is handed, in order."""

    def __init__(self):
        super().__init__()
        self.log = []

    def dump(self, value):
        kind, data = self.serde.dumps_typed(value)
        return {"type": kind, "data": base64.b64encode(data).decode()}

    def put(self, config, checkpoint, metadata, new_versions):
        blobs = {k: self.dump(checkpoint["channel_values"][k]) if k in checkpoint["channel_values"] else {"type": "empty", "data": ""} for k in new_versions if k == "messages"}
        plain = {k: v for k, v in checkpoint["channel_values"].items() if v is None or isinstance(v, (str, int, float, bool))}
        self.log.append({"put": {
            "id": checkpoint["id"], "parent": config["configurable"].get("checkpoint_id", ""), "run": self.run,
            "checkpoint": {**{k: checkpoint[k] for k in ("v", "id", "ts", "channel_versions")}, "channel_values": plain},
            "metadata": {k: metadata[k] for k in ("source", "step", "parents")},
            "blobs": {k: {**v, "version": str(new_versions[k])} for k, v in blobs.items()},
        }})
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config, writes, task_id, task_path=""):
        self.log.append({"writes": {
            "id": config["configurable"]["checkpoint_id"], "task": task_id, "path": task_path,
            "writes": [{"channel": c, **self.dump(v)} for c, v in writes if c == "messages"],
        }})
        return super().put_writes(config, writes, task_id, task_path)


class Talk:
    def __init__(self, durability="sync"):
        self.saver = Recorder()
        self.durability = durability
        self.graph = create_agent(
            Words(), tools=[], checkpointer=self.saver,
            middleware=[SummarizationMiddleware(model=Words(), trigger=("messages", 6), keep=("messages", 2))],
        )
        self.runs = 0
        self.config = {"configurable": {"thread_id": "t"}}

    def say(self, n, config=None, before=()):
        self.runs += 1
        self.saver.run = f"run{self.runs}"
        messages = [*before, {"role": "user", "content": f"say {n}"}]
        self.saver.log.append({"run": {"id": self.saver.run, "input": json.loads(json.dumps(
            {"messages": [m if isinstance(m, dict) else {"type": "remove", "id": m.id} for m in messages]}))}})
        self.graph.invoke({"messages": messages}, config or self.config, durability=self.durability)
        return self

    def update(self, messages, config=None):
        self.saver.run = ""
        self.graph.update_state(config or self.config, {"messages": messages})
        return self

    def messages(self):
        return self.graph.get_state(self.config).values["messages"]


def words(n):
    return " ".join(f"w{i}" for i in range(n))


def turns(*ns):
    return [text for n in ns for text in (f"say {n}", words(n))]


def marked(texts, at, count):
    return [*texts[:at], f"[{count}: Here is a summary of the conversation to date:\n\na summary]", *texts[at:]]


def plain():
    t = Talk()
    for n in (1, 2, 3, 4, 5):
        t.say(n)
    return t, marked(turns(1, 2, 3, 4, 5), 5, 5)


def exit_durability():
    t = Talk("exit")
    for n in (1, 2, 3, 4):
        t.say(n)
    return t, marked(turns(1, 2, 3, 4), 5, 5)


def two_summaries():
    t = Talk()
    for n in range(1, 8):
        t.say(n)
    return t, marked(marked(turns(1, 2, 3, 4, 5, 6, 7), 9, 4), 5, 5)


def time_travel():
    t = Talk()
    for n in (1, 2, 3, 4, 5):
        t.say(n)
    two = next(s for s in t.graph.get_state_history(t.config) if len(s.values.get("messages", [])) == 4 and not s.next and s.values["messages"][0].content == "say 1")
    t.say(9, two.config)
    return t, turns(1, 2, 9)


def regenerate():
    """Again from the checkpoint before the answer: the same question, another branch."""
    t = Talk()
    t.say(1).say(2)
    before = next(s for s in t.graph.get_state_history(t.config) if len(s.values.get("messages", [])) == 3 and "model" in s.next)
    t.saver.run = "again"
    t.graph.invoke(None, before.config, durability="sync")
    return t, turns(1, 2)


def edited():
    t = Talk()
    t.say(1).say(2)
    m = t.messages()[3]
    t.update([AIMessage("edited", id=m.id)])
    for n in (3, 4, 5):
        t.say(n)
    texts = turns(1, 2, 3, 4, 5)
    texts[3] = "edited"
    return t, marked(texts, 5, 5)


def removed():
    t = Talk()
    t.say(1).say(2)
    t.update([RemoveMessage(t.messages()[0].id)])
    for n in (3, 4, 5):
        t.say(n)
    return t, marked(turns(1, 2, 3, 4, 5)[1:], 4, 4)


def removed_by_input():
    t = Talk()
    t.say(1).say(2)
    first = t.messages()[0]
    t.say(3, before=[RemoveMessage(first.id)])
    return t, turns(1, 2, 3)[1:]


def copied():
    """update_state with __copy__: a checkpoint beside the head, under the head's parent."""
    t = Talk()
    for n in (1, 2, 3, 4):
        t.say(n)
    at = next(s for s in t.graph.get_state_history(t.config) if s.values["messages"][0].additional_kwargs.get("lc_source"))
    t.saver.run = ""
    t.graph.update_state(at.config, None, as_node="__copy__")
    return t, marked(turns(1, 2, 3, 4), 5, 5)


def main():
    out = {}
    for make in (plain, exit_durability, two_summaries, time_travel, regenerate, edited, removed, removed_by_input, copied):
        t, want = make()
        out[make.__name__] = {"log": t.saver.log, "want": want}
    json.dump(out, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


main()
