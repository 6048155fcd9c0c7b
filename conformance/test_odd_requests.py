"""Requests that are valid but for one thing, class by class. odd_requests.py, which compares two servers, found them."""
import json
import random

import pytest

from conftest import NO_SUCH

LISTS = ["/assistants/search", "/threads/search", "/runs/crons/search"]


@pytest.fixture
async def ran(client, thread):
    """A thread after two runs, with six checkpoints."""
    for n in (1, 4):
        assert await client.runs.wait(thread, "echo", input={"n": n}) == {"n": n + 1}
    return thread


# --- numbers ----------------------------------------------------------------------------

# What Python's int reads, and what it does not.
NUMBERS = {"0": 0, "-0": 0, "1": 1, "01": 1, "+1": 1, " 1 ": 1, "1_0": 10, "1000": 1000, "1001": 1001, "99999999999999999999": 10**20}
NO_NUMBERS = ["", "x", "1.5", "1e3", "0x10", "true", "null", "[]", "1__0", "_1", "--1", NO_SUCH]


@pytest.mark.parametrize("text", NUMBERS)
async def test_numbers_in_queries(http, ran, text):
    n = NUMBERS[text]
    for path, params, rows in (("runs", {"limit": text}, min(2, n)), ("runs", {"offset": text}, max(0, 2 - n)), ("history", {"limit": text}, min(6, n))):
        r = await http.get(f"/threads/{ran}/{path}", params=params)
        assert (r.status_code, len(r.json())) == (200, rows), (path, params)


@pytest.mark.parametrize("text", NO_NUMBERS)
async def test_what_is_no_number_in_queries(http, ran, text):
    for name in ("limit", "offset"):
        r = await http.get(f"/threads/{ran}/runs", params={name: text})
        assert (r.status_code, r.json()) == (400, {"detail": f"invalid literal for int() with base 10: '{text}'"}), name
    r = await http.get(f"/threads/{ran}/history", params={"limit": text})
    assert (r.status_code, r.json()) == (422, {"detail": f"Invalid limit {text}"})


async def test_a_negative_limit_of_history_selects_nothing(http, ran):
    r = await http.get(f"/threads/{ran}/history", params={"limit": "-1"})
    assert (r.status_code, r.json()) == (200, [])


async def test_an_empty_status_is_that_of_no_run(http, ran):
    assert len((await http.get(f"/threads/{ran}/runs")).json()) == 2
    r = await http.get(f"/threads/{ran}/runs", params={"status": ""})
    assert (r.status_code, r.json()) == (200, [])


@pytest.mark.parametrize("text, status", [("+1", 200), ("1_0", 200), (" 2 ", 200), ("99999999999999999999", 200), ("0", 422), ("-1", 422), ("1.5", 422), ("x", 422)])
async def test_levels_of_a_drawing(http, text, status):
    assistant = (await http.post("/assistants", json={"graph_id": "parent"})).json()["assistant_id"]
    assert (await http.get(f"/assistants/{assistant}/graph", params={"xray": text})).status_code == status


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("name", ["limit", "offset"])
async def test_numbers_in_bodies(http, path, name):
    odd = ["", "x", "1", -1, 1.5, None, True, [], {}] + ([0, 1001] if name == "limit" else [])
    for value in odd:
        r = await http.post(path, json={name: value})
        assert r.status_code == 422 and isinstance(r.json()["detail"], str), value
    for value in (1, 1000, 1.0):
        assert (await http.post(path, json={name: value})).status_code == 200, value


# --- threads ----------------------------------------------------------------------------


@pytest.mark.parametrize("thread_id, status, detail", [("x", 400, "badly formed hexadecimal UUID string"), (NO_SUCH[:-1], 400, "badly formed hexadecimal UUID string"),
                                                       (NO_SUCH[:-1] + "9", 409, "Conflict")])
async def test_copies_of_nothing(http, thread_id, status, detail):
    r = await http.post(f"/threads/{thread_id}/copy")
    assert (r.status_code, r.json()) == (status, {"detail": detail})


@pytest.mark.parametrize("path, status, detail", [("runs", 422, "Invalid thread ID"), ("runs/stream", 400, "badly formed hexadecimal UUID string"),
                                                  ("runs/wait", 400, "badly formed hexadecimal UUID string")])
async def test_runs_on_what_is_no_thread_id(http, path, status, detail):
    r = await http.post(f"/threads/x/{path}", json={"assistant_id": "echo", "input": {"n": 1}})
    assert (r.status_code, r.json()) == (status, {"detail": detail})


@pytest.mark.parametrize("before", [None, ""])
async def test_history_before_nothing(http, ran, before):
    r = await http.post(f"/threads/{ran}/history", json={"before": before})
    assert r.status_code == 422 and isinstance(r.json()["detail"], str)


@pytest.mark.parametrize("known", [True, False])
async def test_a_state_shows_the_namespace_when_it_was_asked_for(http, ran, known):
    newest = (await http.get(f"/threads/{ran}/state")).json()["checkpoint"]["checkpoint_id"]
    at = {"checkpoint_id": newest if known else "x"}
    for asked in (at, at | {"checkpoint_ns": ""}):
        r = await http.post(f"/threads/{ran}/state/checkpoint", json={"checkpoint": asked})
        assert (r.status_code, r.json()["checkpoint"]) == (200, asked | {"thread_id": ran})


# For lists, objects, null and booleans servers differ by their storage: see docs/wire.md.
ATOMS = ["", "a", "1", 0.5, 2, 7]


@pytest.mark.parametrize("seed", range(3))
async def test_history_by_any_metadata(client, thread, seed):
    random_ = random.Random(seed)
    given = []
    for n in range(4):
        given.append({k: random_.choice(ATOMS) for k in random_.sample("abcd", 3)})
        await client.runs.wait(thread, "echo", input={"n": n}, metadata=given[-1] | {"other": [{}]})
    full = await client.threads.get_history(thread, limit=100)
    assert len(full) == 12
    filters = [{}, {"source": "loop"}, {"source": "input", "step": 2}, {"step": 4}, {"step": 4.0}, {"step": "4"}, {"no": 1}, {"parents": {}}]
    for _ in range(25):
        want = dict(random_.sample(sorted(random_.choice(given).items()), random_.randint(1, 2)))
        if random_.random() < .3:
            want[random_.choice("abcd")] = random_.choice(ATOMS)
        filters.append(want)
    matched = 0
    for want in filters:
        expected = [s for s in full if want.items() <= s["metadata"].items()]
        assert await client.threads.get_history(thread, limit=100, metadata=want) == expected, json.dumps(want)
        assert await client.threads.get_history(thread, limit=2, metadata=want) == expected[:2], json.dumps(want)
        matched += 0 < len(expected) < len(full)
    assert matched > 5


# --- runs -------------------------------------------------------------------------------

HERE = "the first checkpoint with values"


@pytest.mark.parametrize("asked, parent", [
    ({"checkpoint": {"checkpoint_id": "x"}}, "x"),
    ({"checkpoint": {"checkpoint_id": NO_SUCH}}, NO_SUCH),
    ({"checkpoint": {"checkpoint_id": HERE}}, HERE),
    ({"checkpoint_id": NO_SUCH}, NO_SUCH),
    ({"checkpoint_id": NO_SUCH.replace("-", "")}, NO_SUCH),
    ({"checkpoint": {"checkpoint_id": "x"}, "checkpoint_id": NO_SUCH}, "x"),
    ({"checkpoint": {"checkpoint_id": "x"}, "checkpoint_id": ""}, "x"),
    ({"checkpoint": {"checkpoint_ns": ""}, "checkpoint_id": HERE}, HERE),
    ({"checkpoint": {"checkpoint_id": ""}, "checkpoint_id": NO_SUCH}, None),
    ({"checkpoint_id": ""}, None),
])
async def test_checkpoints_that_runs_begin_from(client, http, ran, asked, parent):
    """One that does not exist is the parent all the same, and the run begins on an empty state. The id in `checkpoint` wins. None: the head."""
    first = (await client.threads.get_history(ran, limit=10))[-2]["checkpoint_id"]
    head = (await client.threads.get_state(ran))["checkpoint_id"]
    body = json.loads(json.dumps({"assistant_id": "echo", "input": {"n": 7}} | asked).replace(HERE, first))
    r = await http.post(f"/threads/{ran}/runs/wait", json=body)
    assert (r.status_code, r.json()) == (200, {"n": 8})
    newest = await client.threads.get_history(ran, limit=3)
    assert [s["metadata"]["source"] for s in newest] == ["loop", "loop", "input"]
    assert newest[2]["parent_checkpoint"]["checkpoint_id"] == {None: head, HERE: first}.get(parent, parent)
    assert newest[2]["values"] == ({"n": 5} if parent is None else {"n": 1} if parent == HERE else {})


@pytest.mark.parametrize("asked, parent", [({"checkpoint_id": "x"}, "x"), ({"checkpoint": {"checkpoint_id": "x"}}, "x"),
                                           ({"checkpoint_id": "y", "checkpoint": {"checkpoint_id": "x"}}, "x"),
                                           ({"checkpoint_id": "x", "checkpoint": {"checkpoint_ns": ""}}, "x"),
                                           ({"checkpoint_id": "x", "checkpoint": {"checkpoint_id": ""}}, None)])
async def test_checkpoints_that_updates_begin_from(client, http, ran, asked, parent):
    head = (await client.threads.get_state(ran))["checkpoint_id"]
    assert (await http.post(f"/threads/{ran}/state", json={"values": {"n": 7}} | asked)).status_code == 200
    now = await client.threads.get_state(ran)
    assert (now["values"], now["parent_checkpoint"]["checkpoint_id"]) == ({"n": 7}, parent or head)


async def test_a_checkpoint_id_beside_checkpoint_has_to_be_a_uuid(http, ran):
    for beside in ({}, {"checkpoint": {"checkpoint_id": NO_SUCH}}):
        r = await http.post(f"/threads/{ran}/runs/wait", json={"assistant_id": "echo", "input": {"n": 1}, "checkpoint_id": "x"} | beside)
        assert (r.status_code, r.json()) == (422, {"detail": "Invalid checkpoint ID"})


# --- crons ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/runs/crons", "/threads/{t}/runs/crons"])
async def test_a_new_cron_has_an_end_or_none_but_not_null(http, thread, path):
    body = {"assistant_id": "echo", "schedule": "0 0 1 1 *", "input": {"n": 1}}
    assert (await http.post(path.format(t=thread), json=body | {"end_time": None})).status_code == 422
    made = await http.post(path.format(t=thread), json=body)
    assert (made.status_code, made.json()["end_time"]) == (200, None)
    await http.delete(f"/runs/crons/{made.json()['cron_id']}")


# --- the rest ---------------------------------------------------------------------------


async def test_a_search_of_items_without_a_limit(http):
    for n in range(12):
        await http.put("/store/items", json={"namespace": ["conformance", "odd"], "key": str(n), "value": {}})
    for limit, count in ((0, 10), (1, 1), (12, 12)):
        r = await http.post("/store/items/search", json={"namespace_prefix": ["conformance", "odd"], "limit": limit})
        assert (r.status_code, len(r.json()["items"])) == (200, count), limit


@pytest.mark.exclusive
@pytest.mark.parametrize("status", ["pending", "running", "all"])
async def test_cancelling_all_runs_when_there_are_none(client, http, thread, status):
    await client.runs.create(thread, "echo", input={"n": 1}, after_seconds=1000)
    assert (await http.post("/runs/cancel", json={"status": "all"})).status_code == 204
    r = await http.post("/runs/cancel", json={"status": status})
    assert (r.status_code, r.json()) == (404, {"detail": "No runs found to cancel."})
