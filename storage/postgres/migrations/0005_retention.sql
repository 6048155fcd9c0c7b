-- When the time of a thread is up: NULL if never, if nothing is to be done before it is used again, and in rows of old servers.
ALTER TABLE threads ADD COLUMN expires_at bigint;

-- Threads that are gone for all who look, with rows left that are deleted by and by.
CREATE TABLE thread_remains (
    thread_id text COLLATE "C" PRIMARY KEY
);

-- When each kind of sweeping was last begun.
CREATE TABLE sweeps (
    name text COLLATE "C" PRIMARY KEY,
    at   bigint NOT NULL
);

-- Whoever makes a thread of the same id meanwhile begins with nothing.
CREATE FUNCTION delete_remains() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    t text := NEW.thread_id;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM thread_remains r WHERE r.thread_id = t) THEN
        RETURN NEW;
    END IF;
    DELETE FROM list_parts p USING list_owners o WHERE o.thread_id = t AND p.part > o.owner << 28 AND p.part < (o.owner + 1) << 28;
    DELETE FROM list_owners k WHERE k.thread_id = t;
    DELETE FROM checkpoint_writes k WHERE k.thread_id = t;
    DELETE FROM checkpoint_blobs k WHERE k.thread_id = t;
    DELETE FROM checkpoints k WHERE k.thread_id = t;
    DELETE FROM snapshots k WHERE k.thread_id = t;
    DELETE FROM answers k WHERE k.thread_id = t;
    DELETE FROM stream_records k WHERE k.thread_id = t;
    UPDATE event_bodies b SET refs = refs - 1 FROM (
        SELECT body FROM event_bodies WHERE body IN (SELECT e.body FROM events e WHERE e.thread_id = t) ORDER BY body FOR UPDATE) AS ours WHERE b.body = ours.body;
    DELETE FROM event_bodies WHERE body IN (SELECT e.body FROM events e WHERE e.thread_id = t) AND refs = 0;
    DELETE FROM events k WHERE k.thread_id = t;
    DELETE FROM transcripts k WHERE k.thread_id = t;
    DELETE FROM transcript_nodes k WHERE k.thread_id = t;
    DELETE FROM event_lineage k WHERE k.thread_id = t;
    DELETE FROM thread_remains k WHERE k.thread_id = t;
    RETURN NEW;
END
$$;
CREATE TRIGGER thread_remains_go BEFORE INSERT ON threads FOR EACH ROW EXECUTE FUNCTION delete_remains();
