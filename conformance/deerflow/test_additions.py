"""What the Gateway's clients of August 2026 need beyond test_gateway.py. Facts are those of bytedance/deer-flow at f1f4af99, read in its source."""
import pytest

from test_gateway import OUT, admin, alice, bob, body, call, last_run, say, thread  # noqa: F401  fixtures

pytestmark = pytest.mark.harness


def write(name, content):
    return ("write_file", {"description": "w", "path": f"{OUT}/{name}", "content": content})


def present(*names):
    return ("present_files", {"filepaths": [f"{OUT}/{n}" for n in names]})


EMPTY = {"available": False, "version": 1, "files": [], "limits": {},
         "summary": {"created": 0, "modified": 0, "deleted": 0, "symlink_created": 0, "additions": 0, "deletions": 0, "truncated": False}}


def test_workspace_changes(alice, bob, thread):
    say(alice, thread, "hello")
    rid = last_run(alice, thread)["run_id"]
    url = f"/api/threads/{thread}/runs/{rid}/workspace-changes"
    assert alice.get(url).json() == EMPTY
    assert alice.get(f"/api/threads/{thread}/runs/nope/workspace-changes").json() == EMPTY
    assert bob.get(url).status_code == 404
    assert alice.get(url, params={"include_diff": "maybe"}).status_code == 422

    say(alice, thread, call([write("a.txt", "one\ntwo\n"), write("token.txt", "s3cret-value")], [present("a.txt", "token.txt")]))
    say(alice, thread, call([write("a.txt", "one\nthree\n")], [present("a.txt")]))
    edited, created = [r["run_id"] for r in alice.get(f"/api/threads/{thread}/runs").json()[:2]]
    url = f"/api/threads/{thread}/runs/{created}/workspace-changes"
    r = alice.get(url)
    d = r.json()
    assert d["available"] is True and d["version"] == 1 and "s3cret-value" not in r.text
    assert d["summary"] == {"created": 2, "modified": 0, "deleted": 0, "symlink_created": 0, "additions": 2, "deletions": 0, "truncated": False}
    assert d["limits"] == {"max_files": 200, "max_scanned_files": 2000, "max_file_bytes_for_diff": 262144, "max_total_diff_bytes": 1048576}
    a, secret = d["files"]
    assert set(a) == {"path", "root", "status", "binary", "sensitive", "size_before", "size_after", "sha256_before", "sha256_after", "diff", "diff_truncated", "diff_unavailable_reason",
                      "additions", "deletions", "symlink", "symlink_target_before", "symlink_target_after"}
    assert (a["path"], a["root"], a["status"], a["size_before"], a["size_after"]) == (f"{OUT}/a.txt", "outputs", "created", None, 8)
    assert (secret["sensitive"], secret["diff"], secret["diff_unavailable_reason"]) == (True, "", "sensitive")
    assert [f["diff"] for f in alice.get(url, params={"include_diff": "false"}).json()["files"]] == ["", ""]
    assert alice.get(url, params={"include_files": "false"}).json()["files"] == []

    f = alice.get(f"/api/threads/{thread}/runs/{edited}/workspace-changes").json()["files"]
    assert [x["diff"] for x in f] == [f"--- a{OUT}/a.txt\n+++ b{OUT}/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three"]

    rows = alice.get(f"/api/threads/{thread}/runs/{edited}/events", params={"event_types": "workspace_changes,run.delivery"}).json()
    assert [(x["event_type"], x["category"]) for x in rows] == [("workspace_changes", "workspace"), ("run.delivery", "outputs")]
    assert rows[0]["content"] == "1 file changed +1 -1" and rows[0]["metadata"]["workspace_changes"]["summary"]["modified"] == 1
    assert rows[1]["content"]["satisfied"] is True and rows[1]["content"]["paths"] == [f"{OUT}/a.txt"]
    feed = alice.get(f"/api/threads/{thread}/messages/page", params={"limit": 200}).json()["data"]
    assert {r["category"] for r in feed} == {"message"}


def test_a_run_that_presents_none_of_its_outputs_is_an_error(alice, thread):
    v = say(alice, thread, call([write("lost.txt", "x")]))
    assert v["messages"][-1]["type"] == "ai"
    r = last_run(alice, thread)
    assert r["status"] == "error" and r["stop_reason"] is None
    said = alice.post(f"/api/threads/{thread}/runs/stream", json=body(call([write("lost.txt", "y")]), stream_mode=["values"])).text
    assert "event: error" not in said and "event: end" in said
    say(alice, thread, call([present("lost.txt")]))
    assert last_run(alice, thread)["status"] == "success"


def test_events_of_subagents(alice, thread):
    task = ("task", {"description": "look", "prompt": call([("ls", {"description": "d", "path": "/mnt/user-data/workspace"})]), "subagent_type": "general-purpose"})
    say(alice, thread, call([task]), context={"subagent_enabled": True})
    say(alice, thread, "and then")
    rid = alice.get(f"/api/threads/{thread}/runs").json()[1]["run_id"]
    url = f"/api/threads/{thread}/runs/{rid}/events"
    rows = [r for r in alice.get(url).json() if r["category"] == "subagent"]
    assert [r["event_type"] for r in rows] == ["subagent.start"] + ["subagent.step"] * (len(rows) - 2) + ["subagent.end"]
    assert rows[0]["content"]["description"] == "look" and rows[-1]["content"]["status"] == "completed"
    steps = rows[1:-1]
    assert [s["content"]["kind"] for s in steps] == ["ai", "tool", "ai"]
    assert [s["metadata"]["message_index"] for s in steps] == [1, 2, 3]
    assert steps[0]["content"]["tool_calls"][0]["name"] == "ls" and steps[1]["content"]["tool_name"] == "ls"
    tid = rows[0]["metadata"]["task_id"]
    assert {r["content"]["task_id"] for r in rows} == {tid}

    one = alice.get(url, params={"task_id": tid, "limit": 2}).json()
    assert one == rows[:2]
    rest = alice.get(url, params={"task_id": tid, "after_seq": one[-1]["seq"]}).json()
    assert one + rest == rows
    assert alice.get(url, params={"task_id": "another"}).json() == []
    assert alice.get(url, params={"after_seq": 0}).status_code == 422
