-- What was decided when the database was made. layout: compact or langgraph.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Lists are kept by parts (package internal/compact): such a row of checkpoint_blobs has the type 'list' and names parts by number.
-- Parts belong to one thread and are numbered in it; part is owner * 2^28 + number, so that the parts of a thread stand together.
CREATE TABLE list_owners (
    owner     INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE list_parts (
    part   INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    data   BLOB NOT NULL
) STRICT;
