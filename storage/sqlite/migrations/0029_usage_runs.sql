-- usage_runs has what each ended run used whose row is there, and usage_sums the sums of these by day: a read model, which understudy rebuild makes anew.
-- usage_days has the sums of runs that are deleted, and of all that ended before this version.
ALTER TABLE usage_ended ADD COLUMN run_id TEXT NOT NULL DEFAULT '';

CREATE TABLE usage_runs (
    day      INTEGER NOT NULL,
    run_id   TEXT    NOT NULL,
    identity TEXT    NOT NULL,
    sums     BLOB    NOT NULL,
    PRIMARY KEY (day, run_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_sums (
    identity TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    runs     INTEGER NOT NULL,
    errors   INTEGER NOT NULL,
    calls    INTEGER NOT NULL,
    input    INTEGER NOT NULL,
    output   INTEGER NOT NULL,
    total    INTEGER NOT NULL,
    PRIMARY KEY (identity, day, kind, name)
) STRICT, WITHOUT ROWID;
