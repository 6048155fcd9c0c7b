-- first_seq is that of the first event of a message, on events that revise it; 0 on all others.
ALTER TABLE events ADD COLUMN first_seq INTEGER NOT NULL DEFAULT 0;
UPDATE events SET first_seq = (
    WITH RECURSIVE chain (seq) AS (
        SELECT json_extract(CAST(events.metadata AS TEXT), '$.revises')
        UNION
        SELECT json_extract(CAST(e.metadata AS TEXT), '$.revises') FROM chain JOIN events e ON e.thread_id = events.thread_id AND e.seq = chain.seq
    )
    SELECT min(seq) FROM chain
) WHERE json_extract(CAST(metadata AS TEXT), '$.revises') IS NOT NULL;

-- What pages look for: the revisions among the events of a thread, its events of one type, those of one run.
CREATE INDEX events_revised ON events (thread_id, seq, first_seq) WHERE first_seq > 0;
CREATE INDEX events_type ON events (thread_id, type, seq);
CREATE INDEX events_run ON events (thread_id, run_id, seq, type);

-- What is known of runs that are over. NULL is unknown.
CREATE TABLE run_completions (
    run_id        TEXT PRIMARY KEY,
    input_tokens  INTEGER,
    output_tokens INTEGER,
    total_tokens  INTEGER,
    by_model      BLOB,
    by_caller     BLOB,
    llm_calls     INTEGER,
    messages      INTEGER,
    first_human   TEXT,
    last_ai       TEXT,
    title         TEXT,
    error         TEXT
) STRICT, WITHOUT ROWID;

CREATE TRIGGER run_completions_follow AFTER DELETE ON runs BEGIN
    DELETE FROM run_completions WHERE run_id = old.run_id;
END;

-- How far those who follow the log have come with each thread. created_at is that of the thread when they began: another
-- thread of the same id is followed from its start. Rows outlive their thread until the follower has let go of it too.
CREATE TABLE log_offsets (
    follower   TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    PRIMARY KEY (follower, thread_id)
) STRICT, WITHOUT ROWID;
