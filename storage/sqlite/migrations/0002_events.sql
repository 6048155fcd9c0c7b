-- The log of what happened on threads. Contents are apart and counted: a copied thread has rows of its own that point at the same.
CREATE TABLE event_bodies (
    body    INTEGER PRIMARY KEY,
    refs    INTEGER NOT NULL,
    content BLOB
) STRICT;

CREATE TABLE events (
    thread_id  TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    run_id     TEXT    NOT NULL DEFAULT '',
    type       TEXT    NOT NULL,
    category   TEXT    NOT NULL,
    message_id TEXT    NOT NULL DEFAULT '',
    digest     BLOB,
    anonymous  INTEGER NOT NULL DEFAULT 0,
    body       INTEGER NOT NULL,
    metadata   BLOB,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread_id, seq)
) STRICT, WITHOUT ROWID;

-- What was recorded for each root checkpoint.
CREATE TABLE transcripts (
    thread_id     TEXT    NOT NULL,
    checkpoint_id TEXT    NOT NULL,
    node          INTEGER NOT NULL,
    stamp         INTEGER NOT NULL,
    version       TEXT    NOT NULL,
    summary       TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    run_id        TEXT    NOT NULL,
    opaque        INTEGER NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX transcripts_version ON transcripts (thread_id, version, checkpoint_id);

-- A transcript goes with its checkpoint, however that goes. Nodes stay until the thread goes: others may be made of them.
CREATE TRIGGER transcripts_follow AFTER DELETE ON checkpoints WHEN old.checkpoint_ns = '' BEGIN
    DELETE FROM transcripts WHERE thread_id = old.thread_id AND checkpoint_id = old.checkpoint_id;
END;

CREATE TABLE transcript_nodes (
    thread_id TEXT    NOT NULL,
    node      INTEGER NOT NULL,
    base      INTEGER NOT NULL,
    stamp     INTEGER NOT NULL,
    whole     INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    data      BLOB    NOT NULL,
    PRIMARY KEY (thread_id, node)
) STRICT, WITHOUT ROWID;

-- Where a copied thread comes from: its events up to seq are those of the source.
CREATE TABLE event_lineage (
    thread_id        TEXT    PRIMARY KEY,
    source_thread_id TEXT    NOT NULL,
    seq              INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
