-- Threads that are being copied: nothing shows them yet. A copy lapses when its server has not added to it for a while; what there is of it goes to
-- thread_remains.
CREATE TABLE thread_copies (
    thread_id text COLLATE "C" PRIMARY KEY,
    lapses_at timestamptz NOT NULL
);

-- Runs of a removed thread remain for a while too, and no query shows them. They never outlive the entry that hides them, also when a server of the
-- version before deletes it, which knows nothing of these runs.
CREATE FUNCTION remaining_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM run_completions k WHERE k.run_id IN (SELECT r.run_id FROM runs r WHERE r.thread_id = OLD.thread_id);
    DELETE FROM model_calls k WHERE k.run_id IN (SELECT r.run_id FROM runs r WHERE r.thread_id = OLD.thread_id);
    DELETE FROM run_kwargs k WHERE k.run_id IN (SELECT r.run_id FROM runs r WHERE r.thread_id = OLD.thread_id);
    DELETE FROM runs k WHERE k.thread_id = OLD.thread_id;
    DELETE FROM stream_runs k WHERE k.thread_id = OLD.thread_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER thread_remains_runs AFTER DELETE ON thread_remains FOR EACH ROW EXECUTE FUNCTION remaining_runs();
