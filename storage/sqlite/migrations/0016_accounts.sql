-- Accounts of people who sign in to DeerFlow's web UI. email_key is the e-mail address in lower case.
CREATE TABLE accounts (
    account_id TEXT    PRIMARY KEY,
    email      TEXT    NOT NULL,
    email_key  TEXT    NOT NULL UNIQUE,
    password   TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    setup      INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    provider   TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Failed attempts to sign in, by network address and by account.
CREATE TABLE login_failures (
    name TEXT    NOT NULL,
    at   INTEGER NOT NULL
) STRICT;
CREATE INDEX login_failures_name ON login_failures (name, at);
CREATE INDEX login_failures_at ON login_failures (at);

-- What users think of runs.
CREATE TABLE feedback (
    feedback_id TEXT    PRIMARY KEY,
    thread_id   TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    account_id  TEXT    NOT NULL,
    message_id  TEXT,
    rating      INTEGER NOT NULL,
    comment     TEXT,
    created_at  INTEGER NOT NULL,
    UNIQUE (thread_id, run_id, account_id)
) STRICT;
