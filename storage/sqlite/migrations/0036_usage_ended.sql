-- What runs used that were deleted before the follower of the log counted them, until it does.
CREATE TABLE usage_ended (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    identity TEXT NOT NULL,
    day      INTEGER NOT NULL,
    sums     BLOB NOT NULL,
    run_id   TEXT NOT NULL
) STRICT;
CREATE INDEX usage_ended_run ON usage_ended (run_id);
