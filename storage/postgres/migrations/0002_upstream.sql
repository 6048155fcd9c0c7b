-- Of the proxy: how checkpoints of an upstream server, whose transcripts are recorded, hang together. incomplete: the upstream no longer
-- has an ancestor that was never recorded, so that the transcript begins with what came after it.
CREATE TABLE upstream_checkpoints (
    thread_id     text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent        text COLLATE "C" NOT NULL,
    incomplete    boolean NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_id)
);

-- Condensed messages that clients deleted: they go with the first checkpoint after the one that the client knew. ids is a JSON list.
CREATE TABLE upstream_deleted (
    thread_id text COLLATE "C" NOT NULL,
    after     text COLLATE "C" NOT NULL,
    ids       bytea NOT NULL,
    PRIMARY KEY (thread_id, after)
);
