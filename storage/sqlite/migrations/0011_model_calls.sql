-- Model calls of runs that are not over: what run.end adds up. NULL is unknown.
CREATE TABLE model_calls (
    run_id        TEXT    NOT NULL,
    call_id       TEXT    NOT NULL,
    message_id    TEXT    NOT NULL,
    caller        TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    input_tokens  INTEGER,
    output_tokens INTEGER,
    total_tokens  INTEGER,
    PRIMARY KEY (run_id, call_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER model_calls_follow AFTER DELETE ON runs BEGIN
    DELETE FROM model_calls WHERE run_id = old.run_id;
END;
