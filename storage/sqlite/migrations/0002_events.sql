-- The log of what happened on threads.
CREATE TABLE events (
    thread_id  TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    run_id     TEXT    NOT NULL DEFAULT '',
    type       TEXT    NOT NULL,
    category   TEXT    NOT NULL,
    message_id TEXT    NOT NULL DEFAULT '',
    content    BLOB,
    metadata   BLOB,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread_id, seq)
) STRICT;
