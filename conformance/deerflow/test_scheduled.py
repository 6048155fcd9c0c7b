"""Scheduled tasks: the real Gateway at f1f4af99 passes all of them; where it is at fault, the case says so and is `better`."""
import uuid

import pytest

from test_gateway import admin, alice, bob, bare, body, new_thread, say, thread, wait_for  # noqa: F401  fixtures

TASKS = "/api/scheduled-tasks"
BASE = {"title": "News", "prompt": "hello", "schedule_type": "cron", "schedule_spec": {"cron": "0 9 * * *"}, "timezone": "UTC"}
ONCE = {"schedule_type": "once", "schedule_spec": {"run_at": "2099-01-01T00:00:00Z"}}
KEYS = {"id", "user_id", "thread_id", "context_mode", "assistant_id", "title", "prompt", "schedule_type", "schedule_spec", "timezone", "status", "overlap_policy", "next_run_at", "last_run_at", "last_run_id",
        "last_thread_id", "last_error", "lease_owner", "lease_expires_at", "run_count", "created_at", "updated_at"}
RUN_KEYS = {"id", "task_id", "thread_id", "run_id", "scheduled_for", "trigger", "status", "error", "started_at", "finished_at", "created_at"}


def make(c, **kw):
    r = c.post(TASKS, json={**BASE, **kw})
    assert r.status_code == 200, r.text
    return r.json()


def task(c, t):
    return c.get(f"{TASKS}/{t['id']}").json()


def runs(c, t):
    return c.get(f"{TASKS}/{t['id']}/runs").json()


def ended(c, t):
    """The occurrences of a task once none of them is running"""
    return wait_for(lambda: [x for x in runs(c, t) if all(y["status"] not in ("queued", "running") for y in runs(c, t))], 40)


def test_a_task_from_making_to_deleting(alice):
    t = make(alice, extra=1)
    assert set(t) == KEYS and t["status"] == "enabled" and t["user_id"] == alice.me["id"] and t["context_mode"] == "fresh_thread_per_run" and t["assistant_id"] == "lead_agent"
    assert t["overlap_policy"] == "skip" and t["run_count"] == 0 and t["next_run_at"].endswith("T09:00:00+00:00")
    assert all(t[k] is None for k in ("thread_id", "last_run_at", "last_run_id", "last_thread_id", "last_error", "lease_owner", "lease_expires_at"))
    assert task(alice, t) == t and alice.get(TASKS).json()[0] == t and runs(alice, t) == []
    p = alice.post(f"{TASKS}/{t['id']}/pause").json()
    assert p["status"] == "paused" and p["next_run_at"] == t["next_run_at"] and p["updated_at"] > t["updated_at"]
    assert alice.post(f"{TASKS}/{t['id']}/resume").json()["status"] == "enabled"
    assert alice.delete(f"{TASKS}/{t['id']}").json() == {"id": t["id"], "deleted": True}
    for r in (alice.get(f"{TASKS}/{t['id']}"), alice.delete(f"{TASKS}/{t['id']}"), alice.get(f"{TASKS}/{t['id']}/runs"), alice.post(f"{TASKS}/{t['id']}/trigger")):
        assert r.status_code == 404 and r.json() == {"detail": "Scheduled task not found"}


@pytest.mark.parametrize("change,problem", [
    ({"title": None}, ("string_type", "title")), ({"title": ""}, ("string_too_short", "title")), ({"title": 5}, ("string_type", "title")), ({"prompt": ""}, ("string_too_short", "prompt")),
    ({"schedule_spec": []}, ("dict_type", "schedule_spec")), ({"schedule_spec": None}, ("dict_type", "schedule_spec")), ({"context_mode": None}, ("string_type", "context_mode")),
    ({"thread_id": "a b"}, ("string_pattern_mismatch", "thread_id")), ({"thread_id": 5}, ("string_type", "thread_id")), ({"thread_id": "x" * 65}, ("string_too_long", "thread_id")), ({"timezone": 5}, ("string_type", "timezone"))])
def test_fields(alice, change, problem):
    r = alice.post(TASKS, json={**BASE, **change})
    assert r.status_code == 422 and [(p["type"], p["loc"]) for p in r.json()["detail"]] == [(problem[0], ["body", problem[1]])], r.text


@pytest.mark.parametrize("key", ["title", "prompt", "schedule_type", "schedule_spec", "timezone"])
def test_fields_that_are_missing(alice, key):
    r = alice.post(TASKS, json={k: v for k, v in BASE.items() if k != key})
    assert r.status_code == 422 and [(p["type"], p["loc"]) for p in r.json()["detail"]] == [("missing", ["body", key])]


@pytest.mark.parametrize("change,status,text", [
    ({"schedule_type": "x"}, 422, "Unsupported schedule_type"), ({"context_mode": "x"}, 422, "Unsupported context_mode"), ({"context_mode": "x", "timezone": "Mars/X"}, 422, "Unsupported context_mode"),
    ({"context_mode": "reuse_thread"}, 422, "reuse_thread requires thread_id"), ({"context_mode": "reuse_thread", "thread_id": "nope"}, 404, "Thread not found"),
    ({"timezone": "Mars/X"}, 422, "Unknown timezone: Mars/X"), ({"timezone": "Local"}, 422, "Unknown timezone: Local"), ({"schedule_spec": {}}, 422, "cron schedule requires schedule_spec.cron"),
    ({"schedule_spec": {"cron": 5}}, 422, "cron schedule requires schedule_spec.cron"), ({"schedule_spec": {"cron": "* * * *"}}, 422, "Cron expression must contain exactly 5 fields"),
    ({"schedule_spec": {"cron": "@daily"}}, 422, "Cron expression must contain exactly 5 fields"), ({"schedule_spec": {"cron": "0 0 30 2 *"}}, 422, "failed to find next date"),
    ({"schedule_type": "once"}, 422, "once schedule requires run_at"), ({**ONCE, "schedule_spec": {"run_at": 5}}, 422, "once schedule requires run_at"), ({**ONCE, "schedule_spec": {"run_at": "x"}}, 422, "Invalid isoformat string: 'x'"),
    ({**ONCE, "schedule_spec": {"run_at": "2020-01-01T00:00:00Z"}}, 422, "once schedule must be in the future")])
def test_schedules_that_are_refused(alice, change, status, text):
    r = alice.post(TASKS, json={**BASE, **change})
    assert (r.status_code, r.json()) == (status, {"detail": text})


@pytest.mark.parametrize("change", [{"schedule_spec": {"cron": "61 * * * *"}}, {"schedule_spec": {"cron": "x * * * *"}}, {"schedule_spec": {"cron": "*/0 * * * *"}}, {"timezone": ""}, {"timezone": "../etc"}, {"timezone": "/etc/passwd"}])
def test_schedules_that_cannot_be_read(alice, change):
    r = alice.post(TASKS, json={**BASE, **change})
    assert r.status_code == 422 and isinstance(r.json()["detail"], str)


def test_soon_is_too_soon(alice):
    import datetime
    soon = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=30)).isoformat()
    r = alice.post(TASKS, json={**BASE, "schedule_type": "once", "schedule_spec": {"run_at": soon}})
    assert r.status_code == 422 and r.json() == {"detail": "once schedule must be at least 60 seconds in the future"}


@pytest.mark.parametrize("run_at,zone,want", [
    ("2099-01-01T00:00:00", "Europe/Berlin", "2098-12-31T23:00:00+00:00"), ("2099-01-01", "UTC", "2099-01-01T00:00:00+00:00"), ("20990101", "UTC", "2099-01-01T00:00:00+00:00"),
    ("2099-01-01 10:20", "Asia/Tokyo", "2099-01-01T01:20:00+00:00"), ("2099-01-01T00:00:00.123456+05:30", "UTC", "2098-12-31T18:30:00.123456+00:00"), ("2099-01-01T000000-0100", "UTC", "2099-01-01T01:00:00+00:00"),
    ("2099-07-01T12:00:00,5Z", "UTC", "2099-07-01T12:00:00.500000+00:00")])
def test_single_times(alice, run_at, zone, want):
    t = make(alice, schedule_type="once", schedule_spec={"run_at": run_at, "kept": [1]}, timezone=zone)
    assert t["next_run_at"] == want and t["schedule_spec"] == {"run_at": run_at, "kept": [1]}


def test_an_expression_is_stored_without_superfluous_spaces(alice):
    t = make(alice, schedule_spec={"cron": "  0   9 * * MON-FRI ", "kept": 1}, timezone="Asia/Tokyo")
    assert t["schedule_spec"] == {"cron": "0 9 * * MON-FRI", "kept": 1} and t["next_run_at"].endswith("T00:00:00+00:00")


def test_changes(alice, thread):
    t = make(alice)
    at = f"{TASKS}/{t['id']}"

    def patch(**kw):
        r = alice.patch(at, json=kw)
        return r.json() if r.status_code == 200 else (r.status_code, r.json()["detail"])
    before = patch()
    assert {**before, "updated_at": 0} == {**t, "updated_at": 0} and {**patch(title=None, status="paused", schedule_type="once"), "updated_at": 0} == {**t, "updated_at": 0}
    assert patch(title="N", prompt="p")["title"] == "N" and task(alice, t)["prompt"] == "p"
    assert patch(timezone="Asia/Tokyo")["next_run_at"].endswith("T00:00:00+00:00")
    assert patch(schedule_spec={"cron": "5 5 * * *"})["next_run_at"].endswith("T20:05:00+00:00")
    assert patch(timezone="x") == (422, "Unknown timezone: x") and patch(schedule_spec={}) == (422, "cron schedule requires schedule_spec.cron") and patch(context_mode="x") == (422, "Unsupported context_mode")
    assert patch(context_mode="reuse_thread") == (422, "reuse_thread requires thread_id") and patch(context_mode="reuse_thread", thread_id="nope") == (404, "Thread not found")
    assert patch(title="")[0] == 422 and patch(thread_id="a b")[0] == 422 and patch(thread_id="other")["thread_id"] is None
    assert patch(context_mode="reuse_thread", thread_id=thread)["thread_id"] == thread and patch(title="M")["thread_id"] == thread
    assert [x["id"] for x in alice.get(f"/api/threads/{thread}/scheduled-tasks").json()] == [t["id"]]
    assert patch(context_mode="fresh_thread_per_run")["thread_id"] is None and alice.get(f"/api/threads/{thread}/scheduled-tasks").json() == []


def test_each_user_has_their_own(alice, bob, thread):
    t = make(alice, context_mode="reuse_thread", thread_id=thread)
    at = f"{TASKS}/{t['id']}"
    for r in (bob.get(at), bob.patch(at, json={}), bob.post(at + "/pause"), bob.post(at + "/resume"), bob.post(at + "/trigger"), bob.delete(at), bob.get(at + "/runs")):
        assert r.status_code == 404 and r.json() == {"detail": "Scheduled task not found"}
    assert t["id"] not in [x["id"] for x in bob.get(TASKS).json()] and task(alice, t) == t
    assert bob.get(f"/api/threads/{thread}/scheduled-tasks").status_code == 404 and alice.get("/api/threads/nobodys-thread/scheduled-tasks").json() == []
    r = bob.post(TASKS, json={**BASE, "context_mode": "reuse_thread", "thread_id": thread})
    assert r.status_code == 404 and r.json() == {"detail": "Thread not found"}
    mine = make(bob)
    assert bob.patch(f"{TASKS}/{mine['id']}", json={"context_mode": "reuse_thread", "thread_id": thread}).status_code == 404
    c = bare()
    assert c.get(TASKS).status_code == 401 and c.post(TASKS, json=BASE).status_code == 403


@pytest.mark.parametrize("query,where", [("limit=0", "limit"), ("limit=201", "limit"), ("offset=-1", "offset"), ("limit=x", "limit")])
def test_pages_of_runs(alice, query, where):
    r = alice.get(f"{TASKS}/{make(alice)['id']}/runs?{query}")
    assert r.status_code == 422 and [p["loc"] for p in r.json()["detail"]] == [["query", where]]


@pytest.mark.harness
def test_a_triggered_task_runs_in_a_thread_of_its_own(alice):
    t = make(alice, prompt="SAY good morning")
    at = f"{TASKS}/{t['id']}"
    alice.post(at + "/pause")
    for n in (1, 2):
        assert alice.post(at + "/trigger").json() == {"id": t["id"], "triggered": True}
        assert len(ended(alice, t)) == n
    second, first = runs(alice, t)
    assert set(first) == RUN_KEYS and first["trigger"] == "manual" and first["status"] == "success" and first["error"] is None and first["finished_at"] >= first["started_at"]
    assert first["thread_id"] != second["thread_id"] and first["scheduled_for"] < second["scheduled_for"] and runs(alice, t)[1:] == alice.get(at + "/runs?limit=1&offset=1").json()
    now = task(alice, t)
    assert now["status"] == "paused" and now["run_count"] == 2 and now["last_run_id"] == second["run_id"] and now["last_thread_id"] == second["thread_id"] and now["last_run_at"] == second["scheduled_for"]
    x = alice.get(f"/api/threads/{first['thread_id']}/runs/{first['run_id']}").json()
    marks = {"scheduled_task_id": t["id"], "scheduled_task_run_id": first["id"], "scheduled_trigger": "manual"}
    assert x["status"] == "success" and {k: x["metadata"].get(k) for k in marks} == marks
    [start] = alice.get(f"/api/threads/{first['thread_id']}/runs/{first['run_id']}/events", params={"event_types": "run.start"}).json()
    assert start["metadata"]["agent_name"] == "default" and start["metadata"]["model_name"] == alice.get("/api/models").json()["models"][0]["name"]
    th = alice.get(f"/api/threads/{first['thread_id']}").json()
    assert th["metadata"] == marks and [m["content"] for m in th["values"]["messages"] if m["type"] == "ai"] == ["good morning"]
    assert first["thread_id"] in [y["thread_id"] for y in alice.post("/api/threads/search", json={}).json()]
    alice.delete(at)
    assert alice.get(f"/api/threads/{first['thread_id']}").status_code == 200


@pytest.mark.harness
def test_a_task_continues_a_thread(alice, thread):
    say(alice, thread, "SAY one")
    t = make(alice, context_mode="reuse_thread", thread_id=thread, prompt="SAY two")
    alice.post(f"{TASKS}/{t['id']}/trigger")
    assert ended(alice, t)[0]["thread_id"] == thread
    assert [m["content"] for m in alice.get(f"/api/threads/{thread}").json()["values"]["messages"] if m["type"] == "ai"] == ["one", "two"]


@pytest.mark.harness
def test_one_run_at_a_time(alice):
    t = make(alice, prompt="SLOW 60", **ONCE)
    at = f"{TASKS}/{t['id']}"
    assert alice.post(at + "/trigger").status_code == 200
    assert task(alice, t)["status"] == "running" and runs(alice, t)[0]["status"] == "running" and runs(alice, t)[0]["finished_at"] is None
    r = alice.post(at + "/trigger")
    assert r.status_code == 409 and r.json() == {"detail": "task already has an active run"}
    for r in (alice.patch(at, json={"title": "x"}), alice.post(at + "/pause"), alice.post(at + "/resume")):
        assert r.status_code == 409 and r.json() == {"detail": "Scheduled task is currently running; retry after the active execution finishes"}
    assert len(ended(alice, t)) == 1
    now = task(alice, t)
    assert now["status"] == "completed" and now["run_count"] == 1 and now["last_error"] is None
    assert alice.patch(at, json={"schedule_spec": {"run_at": "2098-01-01T00:00:00Z"}}).json()["status"] == "enabled"


@pytest.mark.harness
def test_a_cancelled_run(alice):
    t = make(alice, prompt="SLOW 200", **ONCE)
    alice.post(f"{TASKS}/{t['id']}/trigger")
    x = runs(alice, t)[0]
    r = alice.post(f"/api/threads/{x['thread_id']}/runs/{x['run_id']}/cancel?wait=true")
    assert r.status_code in (202, 204), r.text
    x = ended(alice, t)[0]
    now = task(alice, t)
    assert x["status"] == "interrupted" and x["error"] == now["last_error"] == "run was interrupted before completion" and now["status"] == "cancelled"


@pytest.mark.harness
def test_a_busy_thread(alice, thread):
    t = make(alice, context_mode="reuse_thread", thread_id=thread)
    x = alice.post(f"/api/threads/{thread}/runs", json=body("SLOW 60")).json()
    r = alice.post(f"{TASKS}/{t['id']}/trigger")
    assert r.status_code == 409 and isinstance(r.json()["detail"], str)
    failed = runs(alice, t)[0]
    assert failed["status"] == "failed" and failed["run_id"] is None and failed["error"] and failed["finished_at"]
    now = task(alice, t)
    assert now["status"] == "enabled" and now["last_error"] == failed["error"] and now["last_run_id"] is None and now["run_count"] == 0 and now["last_thread_id"] == thread
    alice.post(f"/api/threads/{thread}/runs/{x['run_id']}/cancel?wait=true")


@pytest.mark.better  # the real one keeps the task, and its next run makes the thread again
def test_a_deleted_thread_takes_its_tasks_with_it(alice, thread):
    t = make(alice, context_mode="reuse_thread", thread_id=thread)
    assert alice.delete(f"/api/threads/{thread}").status_code == 200
    assert alice.get(f"{TASKS}/{t['id']}").status_code in (200, 404)


def test_tasks_are_no_crons_of_langgraph(alice):
    t = make(alice, title=uuid.uuid4().hex)
    r = alice.post("/runs/crons/search", json={})
    assert r.status_code == 404 or t["title"] not in r.text and not [c for c in r.json() if c["cron_id"].replace("-", "") in t["id"]]
