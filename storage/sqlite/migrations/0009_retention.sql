-- When the time of a thread is up: NULL if never, or if nothing is to be done before it is used again.
ALTER TABLE threads ADD COLUMN expires_at INTEGER;
UPDATE threads SET expires_at = updated_at WHERE ttl IS NOT NULL;
CREATE INDEX threads_expiry ON threads (expires_at, thread_id) WHERE expires_at IS NOT NULL;

-- Threads that are gone for all who look, with rows left that are deleted by and by.
CREATE TABLE thread_remains (
    thread_id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- When each kind of sweeping was last begun.
CREATE TABLE sweeps (
    name TEXT    PRIMARY KEY,
    at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Whoever makes a thread of the same id meanwhile begins with nothing.
CREATE TRIGGER thread_remains_go BEFORE INSERT ON threads WHEN EXISTS (SELECT 1 FROM thread_remains WHERE thread_id = new.thread_id) BEGIN
    DELETE FROM list_parts WHERE part IN (
        SELECT p.part FROM list_owners o CROSS JOIN list_parts p ON p.part BETWEEN o.owner << 28 AND ((o.owner + 1) << 28) - 1 WHERE o.thread_id = new.thread_id);
    DELETE FROM list_owners WHERE thread_id = new.thread_id;
    DELETE FROM checkpoint_writes WHERE thread_id = new.thread_id;
    DELETE FROM checkpoint_blobs WHERE thread_id = new.thread_id;
    DELETE FROM checkpoints WHERE thread_id = new.thread_id;
    DELETE FROM answers WHERE thread_id = new.thread_id;
    DELETE FROM stream_records WHERE thread_id = new.thread_id;
    UPDATE event_bodies SET refs = refs - 1 WHERE body IN (SELECT body FROM events WHERE thread_id = new.thread_id);
    DELETE FROM event_bodies WHERE body IN (SELECT body FROM events WHERE thread_id = new.thread_id) AND refs = 0;
    DELETE FROM events WHERE thread_id = new.thread_id;
    DELETE FROM transcripts WHERE thread_id = new.thread_id;
    DELETE FROM transcript_nodes WHERE thread_id = new.thread_id;
    DELETE FROM event_lineage WHERE thread_id = new.thread_id;
    DELETE FROM thread_remains WHERE thread_id = new.thread_id;
END;
