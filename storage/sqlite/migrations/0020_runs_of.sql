-- Who created runs that may still be waiting or running, for limits.concurrent_runs: identity is the SHA-256 in hexadecimal. Rows of runs that are over
-- are deleted when the identity creates its next run.
CREATE TABLE runs_of (
    identity TEXT NOT NULL,
    run_id   TEXT NOT NULL,
    PRIMARY KEY (identity, run_id)
) STRICT, WITHOUT ROWID;
