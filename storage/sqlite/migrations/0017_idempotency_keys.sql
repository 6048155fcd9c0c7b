-- Keys of requests that created a thread (no runs) or runs (separated by spaces), for a day: id and digest are SHA-256, at is in microseconds.
CREATE TABLE idempotency_keys (
    id        TEXT    NOT NULL PRIMARY KEY,
    digest    BLOB    NOT NULL,
    at        INTEGER NOT NULL,
    thread_id TEXT    NOT NULL,
    runs      TEXT    NOT NULL
) STRICT;
CREATE INDEX idempotency_keys_at ON idempotency_keys (at);
