-- Spans of runs, several in a row. They are inserted in the order of time, so the oldest rows have the lowest ids.
CREATE TABLE run_spans (
    id     INTEGER PRIMARY KEY,
    run_id TEXT    NOT NULL,
    number INTEGER NOT NULL,
    spans  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    body   BLOB    NOT NULL,
    UNIQUE (run_id, number)
) STRICT;

CREATE TRIGGER run_spans_follow AFTER DELETE ON runs BEGIN
    DELETE FROM run_spans WHERE run_id = old.run_id;
END;
