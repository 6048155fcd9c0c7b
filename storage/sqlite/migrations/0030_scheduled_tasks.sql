-- Scheduled tasks of DeerFlow are crons of an account. task is what such a cron has in addition, as JSON; account_id is '' for other crons.
ALTER TABLE crons ADD COLUMN account_id TEXT NOT NULL DEFAULT '';
ALTER TABLE crons ADD COLUMN task BLOB;
CREATE INDEX crons_account ON crons (account_id, created_at, cron_id) WHERE account_id <> '';

-- What came of each time a scheduled task was due or triggered. run_id is '' when it made no run; status and error count only then.
CREATE TABLE cron_occurrences (
    occurrence_id TEXT    PRIMARY KEY,
    cron_id       TEXT    NOT NULL,
    thread_id     TEXT    NOT NULL,
    run_id        TEXT    NOT NULL DEFAULT '',
    manual        INTEGER NOT NULL,
    status        TEXT    NOT NULL DEFAULT '',
    error         BLOB,
    created_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX cron_occurrences_cron ON cron_occurrences (cron_id, created_at, occurrence_id);
CREATE INDEX cron_occurrences_thread ON cron_occurrences (thread_id);
CREATE INDEX cron_occurrences_run ON cron_occurrences (run_id) WHERE run_id <> '';
