-- What runs used. usage_ended lists runs that have ended and are not in usage_days yet: sums by day (since 1970, UTC), kind and name, of an identity
-- (its SHA-256 in hexadecimal) and, with identity '', of everyone.
CREATE TABLE usage_ended (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    identity TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    sums     BLOB    NOT NULL
) STRICT;

CREATE TABLE usage_days (
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
