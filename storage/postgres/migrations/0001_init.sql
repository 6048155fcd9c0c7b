-- Times are microseconds since 1970, UTC. JSON is kept as the bytes it came in, as bytea. NULL means absent.

CREATE TABLE meta (
    key   text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);

-- What the graph alone can say of a checkpoint, and which run wrote it. Beside checkpoints, whose table is that of langgraph-checkpoint-postgres.
CREATE TABLE snapshots (
    thread_id     text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    run_id        text COLLATE "C" NOT NULL DEFAULT '',
    shape         text COLLATE "C" NOT NULL DEFAULT '',
    tasks         bytea,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);
CREATE INDEX snapshots_run ON snapshots (thread_id, run_id);

CREATE TABLE shapes (
    digest text COLLATE "C" PRIMARY KEY,
    shape  bytea NOT NULL
);

CREATE TABLE answers (
    thread_id     text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    answer        bytea,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, key)
);

-- Lists are kept by parts (package internal/compact): such a row of checkpoint_blobs has the type 'list' and names parts by number.
-- Parts belong to one thread and are numbered in it; part is owner * 2^28 + number, so that the parts of a thread stand together.
-- epoch grows when parts go: what instances remember of them is void then.
CREATE TABLE list_owners (
    owner     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id text COLLATE "C" NOT NULL UNIQUE,
    epoch     bigint NOT NULL DEFAULT 0
);

CREATE TABLE list_parts (
    part   bigint PRIMARY KEY,
    digest bytea NOT NULL,
    data   bytea NOT NULL
);

CREATE TABLE assistants (
    assistant_id text COLLATE "C" PRIMARY KEY,
    graph_id     text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    description  text COLLATE "C",
    config       bytea,
    context      bytea,
    metadata     bytea,
    version      bigint NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL
);
CREATE INDEX assistants_created ON assistants (created_at, assistant_id);
CREATE INDEX assistants_updated ON assistants (updated_at, assistant_id);
CREATE INDEX assistants_graph ON assistants (graph_id, assistant_id);
CREATE INDEX assistants_name ON assistants (name, assistant_id);

CREATE TABLE assistant_versions (
    assistant_id text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    graph_id     text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    description  text COLLATE "C",
    config       bytea,
    context      bytea,
    metadata     bytea,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    PRIMARY KEY (assistant_id, version)
);

-- Rows of threads, runs and lists of runs are written often in place: room is left on their pages.
CREATE TABLE threads (
    thread_id        text COLLATE "C" PRIMARY KEY,
    created_at       bigint NOT NULL,
    updated_at       bigint NOT NULL,
    state_updated_at bigint NOT NULL,
    metadata         bytea,
    config           bytea,
    status           text COLLATE "C" NOT NULL,
    touched          boolean NOT NULL,
    head             text COLLATE "C" NOT NULL DEFAULT '',
    interrupts       bytea,
    error            bytea,
    ttl              bytea,
    stream_high      bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX threads_updated ON threads (updated_at, thread_id);
CREATE INDEX threads_created ON threads (created_at, thread_id);
CREATE INDEX threads_state_updated ON threads (state_updated_at, thread_id);
CREATE INDEX threads_status ON threads (status, thread_id);
CREATE INDEX threads_status_updated ON threads (status, updated_at, thread_id);

-- Scalars at the top level of a thread's metadata, so that a search by them reads only what it finds, in order.
-- value is as package contain spells it; what it does not index is not here.
CREATE TABLE thread_metadata (
    key        text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    updated_at bigint NOT NULL,
    thread_id  text COLLATE "C" NOT NULL,
    PRIMARY KEY (key, value, updated_at, thread_id)
);

-- The queue and the history of runs. created_at is when a run is due.
CREATE TABLE runs (
    run_id        text COLLATE "C" PRIMARY KEY,
    thread_id     text COLLATE "C" NOT NULL,
    assistant_id  text COLLATE "C" NOT NULL,
    graph_id      text COLLATE "C" NOT NULL,
    metadata      bytea,
    status        text COLLATE "C" NOT NULL,
    strategy      text COLLATE "C" NOT NULL,
    created_at    bigint NOT NULL,
    updated_at    bigint NOT NULL,
    started_at    bigint,
    ended_at      bigint,
    attempt       bigint NOT NULL DEFAULT 0,
    failures      bigint NOT NULL DEFAULT 0,
    passed        boolean NOT NULL DEFAULT false,
    owner         text COLLATE "C" NOT NULL DEFAULT '',
    lease_until   bigint,
    cancel        text COLLATE "C" NOT NULL DEFAULT '',
    error         bytea,
    on_completion text COLLATE "C" NOT NULL DEFAULT '',
    on_disconnect text COLLATE "C" NOT NULL DEFAULT '',
    cron_id       text COLLATE "C" NOT NULL DEFAULT '',
    kwargs_digest bytea NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX runs_thread ON runs (thread_id, created_at, run_id);
CREATE INDEX runs_pending ON runs (thread_id, created_at, run_id) WHERE status = 'pending';
CREATE INDEX runs_running ON runs (thread_id, created_at, run_id) WHERE status = 'running';

-- Arguments stay apart: they can be large, and a run's row is written again with every heartbeat.
CREATE TABLE run_kwargs (
    run_id  text COLLATE "C" PRIMARY KEY,
    input   bytea,
    command bytea,
    config  bytea,
    context bytea,
    options bytea NOT NULL -- the small ones, as JSON
);

-- The head of each thread's queue: its oldest pending run, while none is running. So a claim takes the first row that nobody holds,
-- however many runs wait behind others.
CREATE TABLE run_heads (
    thread_id  text COLLATE "C" PRIMARY KEY,
    run_id     text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX run_heads_due ON run_heads (created_at, run_id);

-- The oldest head that is due and whose thread nobody holds, whose lock the transaction then has. Each look after a lock sees what was committed
-- until then: somebody may have claimed it a moment before.
CREATE FUNCTION claim_head(due bigint) RETURNS TABLE (thread text, run text) LANGUAGE plpgsql AS $$
DECLARE
    head run_heads%ROWTYPE;
BEGIN
    FOR head IN SELECT * FROM run_heads h WHERE h.created_at <= due ORDER BY h.created_at, h.run_id LOOP
        IF pg_try_advisory_xact_lock(hashtextextended(head.thread_id, 0)) THEN
            PERFORM 1 FROM run_heads h WHERE h.thread_id = head.thread_id AND h.run_id = head.run_id AND h.created_at <= due;
            IF FOUND THEN
                thread := head.thread_id;
                run := head.run_id;
                RETURN NEXT;
                RETURN;
            END IF;
        END IF;
    END LOOP;
END
$$;

-- What is known of runs that are over. NULL is unknown.
CREATE TABLE run_completions (
    run_id        text COLLATE "C" PRIMARY KEY,
    input_tokens  bigint,
    output_tokens bigint,
    total_tokens  bigint,
    by_model      bytea,
    by_caller     bytea,
    llm_calls     bigint,
    messages      bigint,
    first_human   text COLLATE "C",
    last_ai       text COLLATE "C",
    title         text COLLATE "C",
    error         text COLLATE "C"
);

CREATE TABLE crons (
    cron_id          text COLLATE "C" PRIMARY KEY,
    assistant_id     text COLLATE "C" NOT NULL,
    thread_id        text COLLATE "C" NOT NULL DEFAULT '',
    schedule         text COLLATE "C" NOT NULL,
    timezone         text COLLATE "C" NOT NULL DEFAULT '',
    end_time         bigint,
    payload          bytea,
    next_run_date    bigint,
    metadata         bytea,
    on_run_completed text COLLATE "C" NOT NULL DEFAULT '',
    enabled          boolean NOT NULL,
    created_at       bigint NOT NULL,
    updated_at       bigint NOT NULL
);
CREATE INDEX crons_due ON crons (next_run_date, cron_id) WHERE enabled AND next_run_date IS NOT NULL;
CREATE INDEX crons_thread ON crons (thread_id, created_at, cron_id);
CREATE INDEX crons_assistant ON crons (assistant_id, created_at, cron_id);
CREATE INDEX crons_created ON crons (created_at, cron_id);

-- Webhooks still to be sent.
CREATE TABLE outbox (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    url       text COLLATE "C" NOT NULL,
    body      bytea,
    attempts  bigint NOT NULL DEFAULT 0,
    due       bigint NOT NULL
);
CREATE INDEX outbox_due ON outbox (due, id);

-- Records of live streams that are kept for replay. checkpoint_id: the checkpoint whose messages a kept root `values` shows; '' for all others.
CREATE TABLE stream_records (
    thread_id     text COLLATE "C" NOT NULL,
    ms            bigint NOT NULL,
    n             bigint NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    kind          smallint NOT NULL,
    flags         smallint NOT NULL, -- 1 kept, 2 ephemeral, 4 ahead, 8 of a summarizer
    event         text COLLATE "C" NOT NULL,
    data          bytea,
    checkpoint_id text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (thread_id, ms, n)
);

-- Which runs have records, and where in the stream of their thread: what sweeping looks at.
CREATE TABLE stream_runs (
    run_id    text COLLATE "C" PRIMARY KEY,
    thread_id text COLLATE "C" NOT NULL,
    first_ms  bigint NOT NULL,
    last_ms   bigint NOT NULL
);
CREATE INDEX stream_runs_thread ON stream_runs (thread_id);

-- namespace is its labels joined by the character 0x1f, so that order of text is order of labels.
CREATE TABLE store_items (
    namespace  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ttl        bigint NOT NULL DEFAULT 0, -- microseconds; 0 does not expire
    expires_at bigint,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX store_items_updated ON store_items (updated_at DESC, namespace, key);
CREATE INDEX store_items_namespace ON store_items (namespace, updated_at DESC, key);
CREATE INDEX store_items_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;

-- The log of what happened on threads. Contents are apart and counted: a copied thread has rows of its own that point at the same.
CREATE TABLE event_bodies (
    body    bigint PRIMARY KEY,
    refs    bigint NOT NULL,
    content bytea
) WITH (fillfactor = 90);
CREATE SEQUENCE event_bodies_number CACHE 32;

-- first_seq is that of the first event of a message, on events that revise it; 0 on all others.
CREATE TABLE events (
    thread_id  text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    run_id     text COLLATE "C" NOT NULL DEFAULT '',
    type       text COLLATE "C" NOT NULL,
    category   text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL DEFAULT '',
    digest     bytea,
    anonymous  boolean NOT NULL DEFAULT false,
    body       bigint NOT NULL,
    metadata   bytea,
    created_at bigint,
    first_seq  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (thread_id, seq)
);
CREATE INDEX events_revised ON events (thread_id, seq, first_seq) WHERE first_seq > 0;
CREATE INDEX events_type ON events (thread_id, type, seq);
CREATE INDEX events_run ON events (thread_id, run_id, seq, type);

-- What was recorded for each root checkpoint. It goes with its checkpoint. Nodes stay until the thread goes: others may be made of them.
CREATE TABLE transcripts (
    thread_id     text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    node          bigint NOT NULL,
    stamp         bigint NOT NULL,
    version       text COLLATE "C" NOT NULL,
    summary       text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    opaque        boolean NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_id)
);
CREATE INDEX transcripts_version ON transcripts (thread_id, version, checkpoint_id);

CREATE TABLE transcript_nodes (
    thread_id text COLLATE "C" NOT NULL,
    node      bigint NOT NULL,
    base      bigint NOT NULL,
    stamp     bigint NOT NULL,
    whole     bigint NOT NULL,
    since     bigint NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (thread_id, node)
);

-- Where a copied thread comes from: its events up to seq are those of the source.
CREATE TABLE event_lineage (
    thread_id        text COLLATE "C" PRIMARY KEY,
    source_thread_id text COLLATE "C" NOT NULL,
    seq              bigint NOT NULL
);

-- How far those who follow the log have come with each thread. created_at is that of the thread when they began: another
-- thread of the same id is followed from its start. Rows outlive their thread until the follower has let go of it too.
CREATE TABLE log_offsets (
    follower   text COLLATE "C" NOT NULL,
    thread_id  text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    seq        bigint NOT NULL,
    position   bigint NOT NULL,
    PRIMARY KEY (follower, thread_id)
);
