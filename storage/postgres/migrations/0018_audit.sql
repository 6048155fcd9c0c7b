-- The audit log: changes of keys, and refusals. It is appended to, and its oldest rows are deleted; at is in microseconds.
CREATE TABLE audit_log (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    event    text NOT NULL,
    identity text NOT NULL,
    source   text NOT NULL,
    resource text NOT NULL,
    outcome  text NOT NULL,
    detail   text NOT NULL,
    count    bigint NOT NULL
);
CREATE INDEX audit_log_at ON audit_log (at);
