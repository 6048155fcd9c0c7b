-- Sessions of browsers: session_id is the SHA-256 of a secret that is kept nowhere; times are in microseconds.
CREATE TABLE sessions (
    session_id text    COLLATE "C" PRIMARY KEY,
    identity   text    NOT NULL,
    content    bytea   NOT NULL,
    created_at bigint  NOT NULL,
    renewed_at bigint  NOT NULL,
    expires_at bigint  NOT NULL,
    ends_at    bigint  NOT NULL,
    replaced   boolean NOT NULL DEFAULT false
);
CREATE INDEX sessions_expiry ON sessions (expires_at);
