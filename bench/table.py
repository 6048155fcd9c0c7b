"""The table of docs/performance.md, of the figures that bench/report measured."""
from __future__ import annotations

import statistics


class Figures:
    """Figures by path. What is missing or failed is None."""

    def __init__(self, of):
        self.of = of

    def __call__(self, *path):
        at = self.of
        for key in path:
            if isinstance(at, dict) and at.get("failed"):
                return None
            try:
                at = at[key]
            except (KeyError, IndexError, TypeError):
                return None
        return at


def number(value, digits=3):
    """A number as a person would say it."""
    if value is None:
        return "failed"
    if isinstance(value, str):
        return value
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.0f}"


def over(a, b):
    return None if a is None or not b else a / b


def minus(a, b):
    return None if a is None or b is None else a - b


def table(of):
    f = Figures(of)
    rows = []

    def row(what, ours, theirs="", goal="", reached=None):
        verdict = "" if goal == "" else "failed" if reached is None else "yes" if reached else "**no**"
        rows.append(f"| {what} | {ours} | {theirs} | {goal} | {verdict} |")

    def check(value, test):
        return None if value is None else test(value)

    def part(title):
        rows.append(f"| **{title}** | | | | |")

    part("runs of `echo`, `/runs/wait`")
    for key, name in (("wait1", "stateless"), ("thread1", "on a thread")):
        of_run = "lat_ms" if key == "wait1" else "run_ms"
        p50 = f("runs", key, "ours", of_run, "p50")
        row(f"{name}, concurrency 1: p50 / p99, ms", f"{number(p50)} / {number(f('runs', key, 'ours', of_run, 'p99'))}",
            number(f("runs", key, "theirs", of_run, "p50")), "4 ms", check(p50, lambda v: v <= 4))
    for c in (16, 64, 256):
        row(f"stateless runs per second at {c}", number(f("runs", f"wait{c}", "ours", "per_s")), number(f("runs", f"wait{c}", "theirs", "per_s")))
    for c in (16, 64):
        row(f"threads made with a run, per second at {c}", number(f("runs", f"thread{c}", "ours", "per_s")), number(f("runs", f"thread{c}", "theirs", "per_s")))
    best = max((v for c in (16, 64, 256) if (v := f("runs", f"wait{c}", "ours", "per_s"))), default=None)
    their_best = max((v for c in (16, 64, 256) if (v := f("runs", f"wait{c}", "theirs", "per_s"))), default=None)
    times = over(best, their_best)
    row("best rate: of one worker (there are two), times LangGraph Server's", number(times and times / 2), "1", "3", check(times, lambda v: v / 2 >= 3))
    one, two = f("runs", "alone1", "runs_per_s"), f("runs", "alone2", "runs_per_s")
    share = over(best, two)
    row("best rate, of `ainvoke` with InMemorySaver in two processes at once", f"{number(share and 100 * share)} % of {number(two)}", f"one process: {number(one)}", "60 %",
        check(share, lambda v: v >= .6))
    ops = f("runs", "wait256", "ours", "ops")
    go = over(f("runs", "wait256", "ours", "procs", "server", "own_cpu_s"), ops)
    all_ = over(f("runs", "wait256", "ours", "procs", "server", "cpu_s"), ops)
    row("CPU per run at 256: Go process / with workers, ms", f"{number(go and go * 1000)} / {number(all_ and all_ * 1000)}",
        number(f("runs", "wait256", "theirs", "cpu_ms_per_op")), "0.25 ms", check(go, lambda v: v * 1000 <= .25))

    part("tokens of `agent`, 1,000 without delay, `messages-tuple`")
    for c in (1, 16):
        row(f"tokens per second, streams: {c}", number(f("tokens", f"c{c}", "ours", "events_per_s")), number(f("tokens", f"c{c}", "theirs", "events_per_s")))
    times = over(f("tokens", "c16", "ours", "events_per_s"), f("tokens", "c16", "theirs", "events_per_s"))
    row("16 streams: of one worker, times LangGraph Server's", number(times and times / 2), "1", "4", check(times, lambda v: v / 2 >= 4))
    two = f("tokens", "alone2", "tokens_per_s")
    share = over(f("tokens", "c16", "ours", "events_per_s"), two)
    row("16 streams, of `astream` in two processes at once", f"{number(share and 100 * share)} % of {number(two)}", f"one process: {number(f('tokens', 'alone1', 'tokens_per_s'))}",
        "75 %", check(share, lambda v: v >= .75))
    tokens = f("tokens", "c16", "ours", "events_per_s")
    row("CPU per token, workers included, µs", number(f("tokens", "c16", "ours", "cpu_us_per_event")), number(f("tokens", "c16", "theirs", "cpu_us_per_event")))
    first, alone = f("tokens", "c1", "ours", "first_ms", "p50"), f("tokens", "alone_first", "first_ms")
    added = minus(first, alone)
    row("first token, one stream, p50, ms: what the server adds to the graph", f"{number(added)} ({number(first)}; the graph alone {number(alone)})",
        number(f("tokens", "c1", "theirs", "first_ms", "p50")), "10 ms", check(added, lambda v: v <= 10))

    part("tokens of `agent` by event streaming (protocol v2)")
    for c in (1, 16):
        row(f"tokens per second, streams: {c}", number(f("events", f"c{c}", "ours", "events_per_s")), number(f("events", f"c{c}", "theirs", "events_per_s")))
    row("CPU per token, streams: 1 / 16, workers included, µs", " / ".join(number(f("events", f"c{c}", "ours", "cpu_us_per_event")) for c in (1, 16)),
        number(f("events", "c16", "theirs", "cpu_us_per_event")))
    # Event streaming has a thread and keeps its records. So the goals are for `messages-tuple` on a thread, resumable and not; a stateless run does less.
    for way, name, goals in (("thread", "on a thread", True), ("kept", "on a thread, resumable", True), ("old", "stateless", False)):
        for c in (1, 16):
            share = over(f("events", f"c{c}", "ours", "events_per_s"), f("events", f"{way}{c}", "events_per_s"))
            row(f"of `messages-tuple` {name}: tokens per second, streams: {c}", f"{number(share and 100 * share)} % of {number(f('events', f'{way}{c}', 'events_per_s'))}",
                "", "80 %" if goals else "", check(share, lambda v: v >= .8))
        for c in (1, 16):
            times = over(f("events", f"c{c}", "ours", "cpu_us_per_event"), f("events", f"{way}{c}", "cpu_us_per_event"))
            row(f"of `messages-tuple` {name}: CPU per token, streams: {c}", f"{number(times)} × {number(f('events', f'{way}{c}', 'cpu_us_per_event'))} µs", "",
                "1.3 ×" if goals else "", check(times, lambda v: v <= 1.3))
        later = minus(f("events", "c1", "ours", "first_ms", "p50"), f("events", f"{way}1", "first_ms", "p50"))
        row(f"first token later than by `messages-tuple` {name}, ms", number(later), "", "5 ms" if goals else "", check(later, lambda v: v <= 5))

    cpu = over(f("events", "idle", "open", "server", "own_cpu_s"), f("events", "idle", "seconds"))
    row("500 idle streams: CPU of the Go process, of one core", "failed" if cpu is None else f"{100 * cpu:.2f} %", "", "2 %", check(cpu, lambda v: v <= .02))

    part("spans of runs (`history.traces: timings`), on a thread, concurrency 16")
    for way, name, rate in (("run", "runs of `echo` per second", "per_s"), ("tokens", "runs of `agent` with 20 tokens", "events_per_s")):
        share = over(f("spans", f"{way}_with", rate), f("spans", f"{way}_without", rate))
        row(f"{name}, of those without spans", "failed" if share is None else f"{100 * share:.1f} %", "", "95 %", check(share, lambda v: v >= .95))

    part("many streams, 100 tokens of 20 ms each")
    for c in (100, 500):
        ours, theirs = f("streams", f"c{c}", "ours"), f("streams", f"c{c}", "theirs")
        lag = f("streams", f"c{c}", "ours", "lag_ms", "p99")
        row(f"{c} streams: complete; lag p50 / p99, s", f"{number(f('streams', f'c{c}', 'ours', 'completed'))}; "
            f"{number(over(f('streams', f'c{c}', 'ours', 'lag_ms', 'p50'), 1000), 2)} / {number(over(lag, 1000), 2)}",
            f"{number(f('streams', f'c{c}', 'theirs', 'completed'))}; {number(over(f('streams', f'c{c}', 'theirs', 'lag_ms', 'p99'), 1000), 2)}",
            "1 s" if c == 500 else "", check(lag, lambda v: v <= 1000))
        if c == 500:
            rss = f("streams", "c500", "ours", "procs", "server", "own_rss_peak_mb")
            row("500 streams: memory of the Go process, MB", number(rss), number(f("streams", "c500", "theirs", "procs", "server", "rss_peak_mb")), "100 MB",
                check(rss, lambda v: v < 100))
    rss = f("streams", "idle", "open", "server", "own_rss_peak_mb")
    row(f"{number(f('streams', 'idle', 'streams'))} idle streams: memory of the Go process, MB", number(rss), "", "200 MB", check(rss, lambda v: v < 200))
    cpu = over(f("streams", "idle", "open", "server", "own_cpu_s"), f("streams", "idle", "seconds"))
    row("idle streams: CPU of the Go process, of one core", "failed" if cpu is None else f"{100 * cpu:.2f} %", "", "nothing polls", check(cpu, lambda v: v < .02))
    rss = f("streams", "sockets", "open", "server", "own_rss_peak_mb")
    cpu = over(f("streams", "sockets", "open", "server", "own_cpu_s"), f("streams", "sockets", "seconds"))
    row(f"{number(f('streams', 'sockets', 'streams'))} idle WebSockets with a subscription: memory of the Go process, MB; CPU, of one core",
        f"{number(rss)}; {'failed' if cpu is None else f'{100 * cpu:.2f} %'}", "", "250 MB", check(rss, lambda v: v <= 250))

    part("a thread of 400 messages")
    for key, name, goal in (("state", "state", 1), ("history10", "history, limit 10", 4), ("history100", "history, limit 100", 30)):
        p50 = f("history", "reads", "ours", key, "lat_ms", "p50")
        row(f"`{name}`: p50 / p99, ms", f"{number(p50)} / {number(f('history', 'reads', 'ours', key, 'lat_ms', 'p99'))}",
            number(f("history", "reads", "theirs", key, "lat_ms", "p50")), f"{goal} ms", check(p50, lambda v, goal=goal: v <= goal))
    grown = [over(f("history", "more_checkpoints", k, "lat_ms", "p50"), f("history", "reads", "ours", k, "lat_ms", "p50")) for k in ("state", "history10", "history100")]
    row("the same behind 3,000 checkpoints more: times as long, state / 10 / 100", " / ".join(number(g, 2) for g in grown), "", "does not grow",
        None if None in grown else max(grown) <= 1.3)
    turn = {n: minus(f("history", "turn", n, "lat_ms", "p50"), f("history", "turn", n, "alone", "turn_ms")) for n in ("20", "2000")}
    times = over(turn["2000"], turn["20"])
    row("a turn at message 2,000, times one at 20, both less the turn in process", number(times) + "".join(
        f"; at {n}: {number(f('history', 'turn', n, 'lat_ms', 'p50'))} − {number(f('history', 'turn', n, 'alone', 'turn_ms'))} ms" for n in turn), "", "1.5",
        check(times, lambda v: v <= 1.5))

    part("search of threads, concurrency 4")
    for key, name in (("by_key", "by one key, 100 matches"), ("first_page", "first page, no filter")):
        ours, theirs, big = (f("search", "10000", "ours", key, "per_s"), f("search", "10000", "theirs", key, "per_s"), f("search", "1000000", key, "per_s"))
        row(f"{name}: per second at 10,000 threads", number(ours), number(theirs), "20 times", check(over(ours, theirs), lambda v: v >= 20))
        slower = over(ours, big)
        row(f"{name}: per second at {number(f('search', 'rows'))} threads, times slower", f"{number(big)}, {number(slower, 2)}", "", "2", check(slower, lambda v: v <= 2))

    part("resume, and at rest")
    exact = f("resume", "ours", "exact_mid_run")
    tried = f("resume", "ours", "tried")
    row("exact resume in mid-run, no delay", f"{number(exact)} of {number(tried)}", f"{number(f('resume', 'theirs', 'exact_mid_run'))} of {number(f('resume', 'theirs', 'tried'))}", "all",
        None if exact is None else exact == tried)
    row("first event after a resume in mid-run, p50, ms", number(f("resume", "ours", "rejoin_first_ms", "p50")), number(f("resume", "theirs", "rejoin_first_ms", "p50")))
    starts = f("rest", "starts")
    start = statistics.median(starts) if starts else None
    row("start to `/ok`, median of 5, ms", number(start), number(f("rest", "theirs_start")), "50 ms", check(start, lambda v: v <= 50))
    rss = f("rest", "idle", "procs", "server", "own_rss_end_mb")
    row("idle: memory of the Go process, MB", number(rss), number(f("rest", "theirs_idle", "procs", "server", "rss_end_mb")), "30 MB", check(rss, lambda v: v < 30))
    quarters = [(f("memory", i, "procs", "server", "own_rss_end_mb"), f("memory", i, "procs", "server", "rss_end_mb"), f("memory", i, "ops")) for i in range(4)]
    whole = all(None not in q for q in quarters)
    row(f"memory after each quarter of {number(sum(q[2] for q in quarters)) if whole else '100,000'} runs: Go process; workers, MB",
        "; ".join(" ".join(number(v) for v in vs) for vs in ([q[0] for q in quarters], [minus(q[1], q[0]) for q in quarters])) if whole else "failed", "", "flat",
        quarters[3][0] <= 1.15 * quarters[1][0] and quarters[3][1] - quarters[3][0] <= 1.15 * (quarters[1][1] - quarters[1][0]) if whole else None)

    when = sorted(set(of.get("when", {}).values()))
    head = f"Measured {' to '.join(dict.fromkeys([when[0], when[-1]])) if when else 'never'}.\nTimes and rates are those of the load tool, which shares the cores.\n\n"
    return head + "| | this server | LangGraph Server | goal | reached |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
