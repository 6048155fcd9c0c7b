"""Writes expected.txt: random expressions, a time zone, a time, and when croniter 7.0.0 says that they fire next.

    python expected.py > expected.txt

Most times are near changes of clocks. Expressions that mix # or L with other days are left out: croniter reads them differently from one another.
"""
import random
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from croniter import croniter

random.seed(7)
BOUNDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (0, 59)]
ZONES = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "UTC", "Africa/Cairo", "Asia/Kolkata", "Pacific/Apia"]
CHANGES = [(2027, 3, 14, 7), (2027, 11, 7, 6), (2027, 3, 28, 1), (2027, 10, 31, 1), (2027, 10, 2, 15), (2027, 9, 5, 4), (2027, 4, 4, 3)]


def item(i):
    low, high = BOUNDS[i]
    a, b = random.randint(low, high), random.randint(low, high)
    special = {2: ["L", "?", "L,15"], 3: ["jan", "feb-apr", "DEC"], 4: ["7", "sun", "mon-fri", "0-7", "fri-mon"]}
    return random.choice([
        str(a), str(a), str(a), "*", f"*/{random.randint(1, max(2, high // 2))}", f"{min(a, b)}-{max(a, b)}", f"{a}-{b}", f"{a}-{b}/{random.randint(1, 5)}",
        f"{a}/{random.randint(1, 5)}", random.choice(special.get(i, [str(b)])),
    ])


def field(i):
    if random.random() < (0.5 if i in (2, 3, 4) else 0.2):
        return "*"
    return ",".join(item(i) for _ in range(random.choice([1, 1, 1, 2, 3])))


def expression():
    fields = [field(i) for i in range(random.choice([5] * 5 + [6]))]
    if random.random() < 0.05:
        fields[2], fields[4] = "*", random.choice(["1#2", "L5", "5#3", "sun#1", "l0"])
    elif random.random() < 0.03:
        fields[2], fields[4] = random.choice(["15W", "w1", "31w"]), "*"
    return " ".join(fields)


def show(text, zone):
    at = random.randint(1700000000, 1900000000)
    if random.random() < 0.7:
        at = int(datetime(*random.choice(CHANGES), tzinfo=timezone.utc).timestamp()) - random.randint(-5000, 90000)
    start = datetime.fromtimestamp(at, timezone.utc)
    try:
        fires = croniter(text, start.astimezone(ZoneInfo(zone))).get_next(datetime).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError as e:
        fires = "never" if "next date" in str(e) else "refused"
    print(text, zone, start.strftime("%Y-%m-%dT%H:%M:%SZ"), fires, sep="|")


def wide():
    """One field with a step that may be beyond its range."""
    fields, i = ["*"] * 6, random.randint(0, 5)
    low, high = BOUNDS[i]
    a, b = sorted((random.randint(low, high), random.randint(low, high)))
    fields[i] = random.choice(["*", str(a), f"{a}-{b}"]) + f"/{random.choice([0, high - 1, high, high + 1, high + 2, random.randint(1, 2000)])}"
    return " ".join(fields[:random.choice([5, 6]) if i < 5 else 6])


for _ in range(2000):
    show(expression(), random.choice(ZONES))
for _ in range(300):
    show(wide(), random.choice(ZONES))
for word in ["hourly", "daily", "midnight", "weekly", "monthly", "yearly", "annually", "reboot", "every 5m", "nightly", "Hourly", "DAILY", "hourly "]:
    show("@" + word, random.choice(ZONES))
