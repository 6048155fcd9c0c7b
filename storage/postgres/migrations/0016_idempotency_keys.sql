-- Keys of requests that created a thread (no runs) or runs (separated by spaces), for a day: id and digest are SHA-256, at is in microseconds.
CREATE TABLE idempotency_keys (
    id        text COLLATE "C" PRIMARY KEY,
    digest    bytea  NOT NULL,
    at        bigint NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    runs      text COLLATE "C" NOT NULL
);
CREATE INDEX idempotency_keys_at ON idempotency_keys (at);
