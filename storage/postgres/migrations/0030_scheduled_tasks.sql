-- Scheduled tasks of DeerFlow are crons of an account. task is what such a cron has in addition, as JSON; account_id is '' for other crons.
ALTER TABLE crons ADD COLUMN account_id text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN task bytea;
CREATE INDEX crons_account ON crons (account_id, created_at, cron_id) WHERE account_id <> '';

-- What came of each time a scheduled task was due or triggered. run_id is '' when it made no run; status and error count only then.
CREATE TABLE cron_occurrences (
    occurrence_id text COLLATE "C" PRIMARY KEY,
    cron_id       text COLLATE "C" NOT NULL,
    thread_id     text COLLATE "C" NOT NULL,
    run_id        text COLLATE "C" NOT NULL DEFAULT '',
    manual        boolean NOT NULL,
    status        text COLLATE "C" NOT NULL DEFAULT '',
    error         bytea,
    created_at    bigint NOT NULL
);
CREATE INDEX cron_occurrences_cron ON cron_occurrences (cron_id, created_at, occurrence_id);
CREATE INDEX cron_occurrences_thread ON cron_occurrences (thread_id);
CREATE INDEX cron_occurrences_run ON cron_occurrences (run_id) WHERE run_id <> '';
