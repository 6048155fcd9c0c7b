"""Compares DeerFlow's lead agent in Python with the one in Go: CPU, memory and the first token, with the same scripted model.

    bench/deerflow.py model PORT                       serves the model; config.yaml has it as base_url http://127.0.0.1:PORT
    bench/deerflow.py run URL PID [--prefix /api] [--rounds 3]
                                                       makes runs at the server with this process id, and prints what they took

A run has 200 calls of write_file and ten subagents, which make a half of the calls: 215 answers. The model answers at once, in another process.
"""
import argparse
import http.server
import json
import os
import re
import statistics
import time
import urllib.request

TICK = os.sysconf("SC_CLK_TCK")
CALLS, TASKS, AT_ONCE = 100, 10, 3


def answer(messages):
    """Returns (text, calls) for a request: how far a conversation is, its results of tools say."""
    text = json.dumps(messages)
    done = sum(m["role"] == "tool" for m in messages)
    work = lambda n, where: ("", [("write_file", {"description": "d", "path": f"/mnt/user-data/workspace/{where}-{n}.txt", "content": f"text {n}"})])  # noqa: E731
    task = re.search(r"work on part (\d+)", text)
    first = next((json.dumps(m["content"]) for m in messages if m["role"] == "user" and re.search(r"work on part|long run|say hello", json.dumps(m["content"]))), "")
    if "work on part" in first:
        per = CALLS // TASKS
        return work(done, f"part{task[1]}") if done < per else ("part done", [])
    if "long run" not in first:
        return "hello", []
    if done < CALLS:
        return work(done, "lead")
    tasks = done - CALLS
    if tasks < TASKS:
        return "", [("task", {"description": f"part {n}", "prompt": f"work on part {n}", "subagent_type": "general-purpose"}) for n in range(tasks, min(tasks + AT_ONCE, TASKS))]
    return "all done", []


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    number = 0

    def log_message(self, *_):
        pass

    def do_GET(self):  # when the last first token was sent
        self.plain(json.dumps({"sent": Model.sent, "answers": Model.number}).encode())

    sent = 0.0

    def plain(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text, calls = answer(body["messages"])
        Model.number += 1
        number = Model.number
        calls = [{"index": i, "id": f"call_{number}_{i}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, (n, a) in enumerate(calls)]
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        finish = "tool_calls" if calls else "stop"
        base = {"id": f"answer-{number}", "object": "chat.completion", "created": 0, "model": "m"}
        if not body.get("stream"):
            message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
            return self.plain(json.dumps({**base, "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}).encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

        def send(delta, finish=None, **more):
            chunk = {**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        Model.sent = time.time()
        send({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
        if text == "hello":
            time.sleep(0.1)  # the first token is not the last
        send({}, finish)
        self.wfile.write(f"data: {json.dumps({**base, 'object': 'chat.completion.chunk', 'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())


def tree(pid):
    """The process and all below it."""
    found, children = [pid], {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                children.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(p))
        except OSError:
            pass
    for p in found:
        found += children.get(p, [])
    return found


def spent(pid):
    """Seconds of CPU, MB of memory and MB of that which no file backs, of a process and those below it."""
    cpu, memory, own = 0, 0, 0
    for p in tree(pid):
        try:
            with open(f"/proc/{p}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{p}/smaps_rollup") as f:
                parts = dict(re.findall(r"^(Pss\w*):\s+(\d+)", f.read(), re.M))
                memory, own = memory + int(parts["Pss"]) / 1024, own + int(parts["Pss_Anon"]) / 1024
        except OSError:
            continue
        cpu += sum(map(int, fields[11:13])) / TICK
        if p == pid:
            cpu += sum(map(int, fields[13:15])) / TICK
    return cpu, memory, own


def container(pid):
    """MB that `docker stats` and `kubectl top` show for the process's control group: all of its memory, pages of files included, without those not used lately. None: it has none of its own."""
    groups = {}
    with open(f"/proc/{pid}/cgroup") as f:
        for line in f:
            _, controllers, path = line.strip().split(":", 2)
            groups.update({c: path for c in controllers.split(",")})
    old = "memory" in groups
    group, usage, inactive = ("/sys/fs/cgroup/memory" + groups["memory"], "memory.usage_in_bytes", "total_inactive_file") if old else ("/sys/fs/cgroup" + groups[""], "memory.current", "inactive_file")
    if not os.path.exists(f"{group}/{usage}") or group.rstrip("/") in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        return None
    with open(f"{group}/{usage}") as f:
        used = int(f.read())
    with open(f"{group}/memory.stat") as f:
        return (used - int(dict(line.split() for line in f)[inactive])) / 1e6


class Client:
    def __init__(self, base):
        self.base = base

    def call(self, path, body):
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return urllib.request.urlopen(request)

    def thread(self):
        with self.call("/threads", {}) as r:
            return json.load(r)["thread_id"]

    def run(self, text, modes, subagents):
        """Yields (when, event, data) of a run on a new thread."""
        context = {"subagent_enabled": subagents, "max_total_subagents": TASKS, "max_concurrent_subagents": AT_ONCE, "thinking_enabled": False}
        body = {"assistant_id": "lead_agent", "input": {"messages": [{"type": "human", "content": text}]}, "context": context, "config": {"recursion_limit": 10000},
                "stream_mode": modes, "stream_subgraphs": True}
        thread = self.thread()
        body["context"]["thread_id"] = thread
        event = ""
        with self.call(f"/threads/{thread}/runs/stream", body) as r:
            for line in r:
                if line.startswith(b"event: "):
                    event = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    yield time.time(), event, line[6:]


def measure(args):
    client, model = Client(args.url + args.prefix), args.model
    for _ in client.run("say hello", ["messages-tuple"], False):  # imports, connections
        pass
    _, idle, least = spent(args.pid)
    most, most_own = idle, least
    for number in range(args.rounds):
        before, began, size = spent(args.pid)[0], time.time(), 0
        last = b""
        sampled = time.time()
        for at, event, data in client.run("a long run", args.modes.split(","), True):
            size += len(data)
            if event in ("values", "error"):
                last = data
            if at - sampled > 0.25:
                _, now, now_own = spent(args.pid)
                sampled, most, most_own = at, max(most, now), max(most_own, now_own)
        cpu, memory, own = spent(args.pid)
        most, most_own = max(most, memory), max(most_own, own)
        print(json.dumps({"run": number + 1, "cpu_s": round(cpu - before, 2), "took_s": round(time.time() - began, 2), "memory_mb": round(memory), "most_mb": round(most),
                          "idle_mb": round(idle), "own_mb": round(own), "own_most_mb": round(most_own), "own_idle_mb": round(least), "container_mb": round(container(args.pid) or 0), "stream_mb": round(size / 1e6, 1), "ends": last[-200:].decode(errors="replace") if b"all done" not in last else "all done"}), flush=True)
    late = []
    for _ in range(args.greetings):
        for at, event, data in client.run("say hello", ["messages-tuple"], False):
            if event.startswith("messages") and b"hello" in data and b'"ai' in data.lower():
                with urllib.request.urlopen(model) as r:
                    late.append((at - json.load(r)["sent"]) * 1000)
                break
    if late:
        print(json.dumps({"first_token_ms": round(statistics.median(late), 2), "at_most": round(max(late), 2)}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True)
    m = sub.add_parser("model")
    m.add_argument("port", type=int)
    r = sub.add_parser("run")
    r.add_argument("url")
    r.add_argument("pid", type=int)
    r.add_argument("--model", required=True, help="address of the model")
    r.add_argument("--prefix", default="")
    r.add_argument("--rounds", type=int, default=3)
    r.add_argument("--greetings", type=int, default=10)
    r.add_argument("--modes", default="values,messages-tuple,custom")
    args = p.parse_args()
    if args.command == "model":
        http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Model).serve_forever()
    measure(args)


main()
