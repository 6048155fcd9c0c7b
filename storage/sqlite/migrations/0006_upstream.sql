-- Of the proxy: how checkpoints of an upstream server, whose transcripts are recorded, hang together. incomplete: the upstream no longer
-- has an ancestor that was never recorded, so that the transcript begins with what came after it.
CREATE TABLE upstream_checkpoints (
    thread_id     TEXT    NOT NULL,
    checkpoint_id TEXT    NOT NULL,
    parent        TEXT    NOT NULL,
    incomplete    INTEGER NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_id)
) STRICT, WITHOUT ROWID;

-- Condensed messages that clients deleted: they go with the first checkpoint after the one that the client knew. ids is a JSON list.
CREATE TABLE upstream_deleted (
    thread_id TEXT NOT NULL,
    after     TEXT NOT NULL,
    ids       BLOB NOT NULL,
    PRIMARY KEY (thread_id, after)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER upstream_follow AFTER DELETE ON threads BEGIN
    DELETE FROM upstream_checkpoints WHERE thread_id = old.thread_id;
    DELETE FROM upstream_deleted WHERE thread_id = old.thread_id;
END;
