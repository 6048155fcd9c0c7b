"""A server of its own that is killed while its agent works: what was done is not done again, and the run ends."""
import json
import os
import pathlib
import signal
import socket
import subprocess

import httpx
import pytest

from test_gateway import OUT, call, wait_for

START = pathlib.Path(__file__).with_name("start")
pytestmark = [pytest.mark.harness, pytest.mark.beyond]


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machine:
    """The kit's model, and a server that can be killed and started again."""

    def __init__(self, home):
        self.home, self.port = home, free()
        self.c = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self.start(str(free()))

    def start(self, *fake):
        env = {k: v for k, v in os.environ.items() if k not in ("UNDERSTUDY_DATABASE_URL", "UNDERSTUDY_REDIS_URL")}
        subprocess.run([START, str(self.port), self.home, *fake], check=True, env={**env, "DEER_FLOW_AUTH_DISABLED": "1"})
        self.pid = int((self.home / ("gateway.pid" if fake else f"gateway-{self.port}.pid")).read_text())

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def close(self):
        self.kill()
        os.kill(int((self.home / "model.pid").read_text()), signal.SIGKILL)


@pytest.fixture
def machine(tmp_path):
    m = Machine(tmp_path)
    yield m
    m.close()


def bash(command):
    return "bash", {"description": "d", "command": command}


def note(name):
    return bash(f"echo 1 >> {OUT}/{name}")


LONG = bash(f"echo 1 >> {OUT}/long; touch {OUT}/begun; sleep 2; echo 1 >> {OUT}/late")
DONE = [("present_files", {"filepaths": [f"{OUT}/late"]})]


def task(prompt):
    return "task", {"description": "d", "prompt": prompt, "subagent_type": "general-purpose"}


def inside(text, prompt):
    """The text with a prompt in it that the kit's model does not take apart before the subagent has it"""
    quoted = json.dumps(prompt)
    return text.replace(quoted, quoted.replace(" THEN ", " \\u0054HEN "))


WORK = call([note("of-task")], [LONG])


@pytest.mark.parametrize("text, once", [
    (call([note("first")], [LONG], [note("last")], DONE), ["first", "last"]),
    (inside(call([note("first")], [task(WORK)], [note("last")], DONE), WORK), ["first", "of-task", "last"]),
], ids=["tool", "subagent"])
def test_killed_while_the_agent_works(machine, text, once):
    t = machine.c.post("/api/threads", json={}).json()["thread_id"]
    body = {"assistant_id": "lead_agent", "input": {"messages": [{"type": "human", "content": text}]}, "context": {"subagent_enabled": True}}
    r = machine.c.post(f"/api/threads/{t}/runs", json=body).json()["run_id"]
    files = machine.home / "users/default/threads" / t / "user-data/outputs"
    assert wait_for((files / "begun").exists)
    machine.kill()
    machine.start()
    assert wait_for(lambda: machine.c.get(f"/api/threads/{t}/runs/{r}").json()["status"] == "success", 60)
    assert {n: (files / n).read_text() for n in once} == dict.fromkeys(once, "1\n")
    assert (files / "late").read_text() == "1\n" and (files / "long").read_text() == "1\n1\n"  # what was not done is done again
    said = machine.c.get(f"/api/threads/{t}/state").json()["values"]["messages"]
    assert [m["type"] for m in said] == ["human", *["ai", "tool"] * 4, "ai"] and said[-1]["content"] == "done."
    assert "run.retry" in [e["event_type"] for e in machine.c.get(f"/api/threads/{t}/runs/{r}/events", params={"limit": 200}).json()]
