-- The audit log: changes of keys, and refusals. It is appended to, and its oldest rows are deleted; at is in microseconds.
CREATE TABLE audit_log (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    event    TEXT NOT NULL,
    identity TEXT NOT NULL,
    source   TEXT NOT NULL,
    resource TEXT NOT NULL,
    outcome  TEXT NOT NULL,
    detail   TEXT NOT NULL,
    count    INTEGER NOT NULL
) STRICT;
CREATE INDEX audit_log_at ON audit_log (at);
