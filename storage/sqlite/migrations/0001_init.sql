-- Times are microseconds since 1970, UTC. JSON is kept as the bytes it came in, as BLOB. NULL means absent.

-- Checkpoints, blobs and writes: the tables of langgraph-checkpoint-postgres, in names and meaning.
CREATE TABLE checkpoint_migrations (v INTEGER PRIMARY KEY) STRICT;
INSERT INTO checkpoint_migrations (v) VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);

CREATE TABLE checkpoints (
    thread_id            TEXT NOT NULL,
    checkpoint_ns        TEXT NOT NULL DEFAULT '',
    checkpoint_id        TEXT NOT NULL,
    parent_checkpoint_id TEXT,
    type                 TEXT,
    checkpoint           BLOB NOT NULL,
    metadata             BLOB NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
) STRICT;

CREATE TABLE checkpoint_blobs (
    thread_id     TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    channel       TEXT NOT NULL,
    version       TEXT NOT NULL,
    type          TEXT NOT NULL,
    blob          BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
) STRICT;

CREATE TABLE checkpoint_writes (
    thread_id     TEXT    NOT NULL,
    checkpoint_ns TEXT    NOT NULL DEFAULT '',
    checkpoint_id TEXT    NOT NULL,
    task_id       TEXT    NOT NULL,
    idx           INTEGER NOT NULL,
    channel       TEXT    NOT NULL,
    type          TEXT,
    blob          BLOB    NOT NULL,
    task_path     TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
) STRICT;

-- What the graph alone can say of a checkpoint, and which run wrote it.
CREATE TABLE snapshots (
    thread_id     TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    run_id        TEXT NOT NULL DEFAULT '',
    shape         TEXT NOT NULL DEFAULT '',
    tasks         BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE shapes (
    digest TEXT PRIMARY KEY,
    shape  BLOB NOT NULL
) STRICT;

CREATE TABLE answers (
    thread_id     TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    key           TEXT NOT NULL,
    answer        BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, key)
) STRICT;

CREATE TABLE assistants (
    assistant_id TEXT    PRIMARY KEY,
    graph_id     TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    description  TEXT,
    config       BLOB,
    context      BLOB,
    metadata     BLOB,
    version      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX assistants_created ON assistants (created_at, assistant_id);
CREATE INDEX assistants_updated ON assistants (updated_at, assistant_id);
CREATE INDEX assistants_graph ON assistants (graph_id, created_at, assistant_id);
CREATE INDEX assistants_name ON assistants (name, assistant_id);

CREATE TABLE assistant_versions (
    assistant_id TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    graph_id     TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    description  TEXT,
    config       BLOB,
    context      BLOB,
    metadata     BLOB,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (assistant_id, version)
) STRICT;

CREATE TABLE threads (
    thread_id        TEXT    PRIMARY KEY,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    state_updated_at INTEGER NOT NULL,
    metadata         BLOB,
    config           BLOB,
    status           TEXT    NOT NULL,
    touched          INTEGER NOT NULL,
    head             TEXT    NOT NULL DEFAULT '',
    interrupts       BLOB,
    error            BLOB,
    ttl              BLOB,
    stream_high      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX threads_updated ON threads (updated_at, thread_id);
CREATE INDEX threads_created ON threads (created_at, thread_id);
CREATE INDEX threads_state_updated ON threads (state_updated_at, thread_id);
CREATE INDEX threads_status ON threads (status, thread_id);
CREATE INDEX threads_status_updated ON threads (status, updated_at, thread_id);

-- Scalars at the top level of a thread's metadata, so that a search by them reads only what it finds, in order.
-- value is as package contain spells it; what it does not index is not here.
CREATE TABLE thread_metadata (
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    thread_id  TEXT    NOT NULL,
    PRIMARY KEY (key, value, updated_at, thread_id)
) STRICT, WITHOUT ROWID;

-- The queue and the history of runs. created_at is when a run is due.
CREATE TABLE runs (
    run_id        TEXT    PRIMARY KEY,
    thread_id     TEXT    NOT NULL,
    assistant_id  TEXT    NOT NULL,
    graph_id      TEXT    NOT NULL,
    metadata      BLOB,
    status        TEXT    NOT NULL,
    strategy      TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    started_at    INTEGER,
    ended_at      INTEGER,
    attempt       INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    passed        INTEGER NOT NULL DEFAULT 0,
    owner         TEXT    NOT NULL DEFAULT '',
    lease_until   INTEGER,
    cancel        TEXT    NOT NULL DEFAULT '',
    error         BLOB,
    on_completion TEXT    NOT NULL DEFAULT '',
    on_disconnect TEXT    NOT NULL DEFAULT '',
    cron_id       TEXT    NOT NULL DEFAULT '',
    kwargs_digest BLOB    NOT NULL
) STRICT;
CREATE INDEX runs_thread ON runs (thread_id, created_at, run_id);
CREATE INDEX runs_pending ON runs (thread_id, created_at, run_id) WHERE status = 'pending';
CREATE INDEX runs_running ON runs (thread_id, created_at, run_id) WHERE status = 'running';

-- Arguments stay apart: they can be large, and a run's row is written again with every heartbeat.
CREATE TABLE run_kwargs (
    run_id  TEXT PRIMARY KEY,
    input   BLOB,
    command BLOB,
    config  BLOB,
    context BLOB,
    options BLOB NOT NULL -- the small ones, as JSON
) STRICT;

-- The head of each thread's queue: its oldest pending run, while none is running. So a claim takes the first row,
-- however many runs wait behind others.
CREATE TABLE run_heads (
    thread_id  TEXT    PRIMARY KEY,
    run_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX run_heads_due ON run_heads (created_at, run_id);

CREATE TABLE crons (
    cron_id          TEXT    PRIMARY KEY,
    assistant_id     TEXT    NOT NULL,
    thread_id        TEXT    NOT NULL DEFAULT '',
    schedule         TEXT    NOT NULL,
    timezone         TEXT    NOT NULL DEFAULT '',
    end_time         INTEGER,
    payload          BLOB,
    next_run_date    INTEGER,
    metadata         BLOB,
    on_run_completed TEXT    NOT NULL DEFAULT '',
    enabled          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX crons_due ON crons (next_run_date, cron_id) WHERE enabled = 1 AND next_run_date IS NOT NULL;
CREATE INDEX crons_thread ON crons (thread_id, created_at, cron_id);
CREATE INDEX crons_assistant ON crons (assistant_id, created_at, cron_id);
CREATE INDEX crons_created ON crons (created_at, cron_id);

-- Webhooks still to be sent.
CREATE TABLE outbox (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id TEXT    NOT NULL,
    run_id    TEXT    NOT NULL,
    url       TEXT    NOT NULL,
    body      BLOB,
    attempts  INTEGER NOT NULL DEFAULT 0,
    due       INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_due ON outbox (due, id);

-- Records of live streams that are kept for replay.
CREATE TABLE stream_records (
    thread_id TEXT    NOT NULL,
    ms        INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    run_id    TEXT    NOT NULL,
    kind      INTEGER NOT NULL,
    flags     INTEGER NOT NULL, -- 1 kept, 2 ephemeral
    event     TEXT    NOT NULL,
    data      BLOB,
    PRIMARY KEY (thread_id, ms, n)
) STRICT;

-- Which runs have records, and where in the stream of their thread: what sweeping looks at.
CREATE TABLE stream_runs (
    run_id    TEXT    PRIMARY KEY,
    thread_id TEXT    NOT NULL,
    first_ms  INTEGER NOT NULL,
    last_ms   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX stream_runs_thread ON stream_runs (thread_id);

-- namespace is its labels joined by the character 0x1f, so that order of text is order of labels.
CREATE TABLE store_items (
    namespace  TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    value      BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ttl        INTEGER NOT NULL DEFAULT 0, -- microseconds; 0 does not expire
    expires_at INTEGER,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE INDEX store_items_updated ON store_items (updated_at DESC, namespace, key);
CREATE INDEX store_items_namespace ON store_items (namespace, updated_at DESC, key, expires_at);
CREATE INDEX store_items_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;
