-- Threads that are being copied: nothing shows them yet. What a crash leaves of one is moved to thread_remains at the next start.
CREATE TABLE thread_copies (
    thread_id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Runs of a removed thread remain for a while too, and no query shows them. They never outlive the entry that hides them.
CREATE TRIGGER thread_remains_runs AFTER DELETE ON thread_remains BEGIN
    DELETE FROM run_kwargs WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = old.thread_id);
    DELETE FROM stream_runs WHERE thread_id = old.thread_id;
    DELETE FROM runs WHERE thread_id = old.thread_id;
END;
