-- Spans of runs, several in a row.
CREATE TABLE run_spans (
    run_id text COLLATE "C",
    number bigint,
    spans  integer NOT NULL,
    at     bigint  NOT NULL,
    body   bytea   NOT NULL,
    PRIMARY KEY (run_id, number)
);
CREATE INDEX run_spans_at ON run_spans (at);

-- They go with their run, also when a server of the version before deletes it.
CREATE FUNCTION spans_of_deleted_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM run_spans s WHERE s.run_id IN (SELECT g.run_id FROM gone g);
    RETURN NULL;
END
$$;
CREATE TRIGGER run_spans_follow AFTER DELETE ON runs REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION spans_of_deleted_runs();
