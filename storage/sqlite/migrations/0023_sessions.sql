-- Sessions of browsers: session_id is the SHA-256 of a secret that is kept nowhere; times are in microseconds.
CREATE TABLE sessions (
    session_id TEXT    PRIMARY KEY,
    identity   TEXT    NOT NULL,
    content    BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL,
    replaced   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sessions_expiry ON sessions (expires_at);
