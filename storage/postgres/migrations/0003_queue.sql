-- The queue by graph: a claim passes over graphs of which an instance has enough, however many of their runs wait.
ALTER TABLE run_heads ADD COLUMN graph_id text COLLATE "C" NOT NULL DEFAULT '';
UPDATE run_heads h SET graph_id = r.graph_id FROM runs r WHERE r.run_id = h.run_id;
CREATE INDEX run_heads_graph ON run_heads (graph_id, created_at, run_id);

-- Older instances, which do not know the column, may be at work beside newer ones.
CREATE FUNCTION head_graph() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.graph_id := coalesce((SELECT r.graph_id FROM runs r WHERE r.run_id = NEW.run_id), '');
    RETURN NEW;
END
$$;
CREATE TRIGGER run_heads_inserted BEFORE INSERT ON run_heads FOR EACH ROW WHEN (NEW.graph_id = '') EXECUTE FUNCTION head_graph();
CREATE TRIGGER run_heads_updated BEFORE UPDATE ON run_heads FOR EACH ROW
    WHEN (NEW.run_id <> OLD.run_id AND NEW.graph_id = OLD.graph_id) EXECUTE FUNCTION head_graph();

-- As claim_head(due), but heads of some graphs are passed over. It goes from graph to graph in the index, and looks at the first heads of
-- each: more than there may be transactions that hold one.
CREATE FUNCTION claim_head(due bigint, beside text[]) RETURNS TABLE (thread text, run text) LANGUAGE plpgsql AS $$
DECLARE
    head run_heads%ROWTYPE;
BEGIN
    FOR head IN
        WITH RECURSIVE graphs AS (
            (SELECT h.graph_id FROM run_heads h ORDER BY h.graph_id LIMIT 1)
            UNION ALL
            SELECT (SELECT h.graph_id FROM run_heads h WHERE h.graph_id > g.graph_id ORDER BY h.graph_id LIMIT 1) FROM graphs g WHERE g.graph_id IS NOT NULL
        )
        SELECT first.* FROM graphs g CROSS JOIN LATERAL (
            SELECT * FROM run_heads h WHERE h.graph_id = g.graph_id AND h.created_at <= due ORDER BY h.created_at, h.run_id LIMIT 100
        ) first
        WHERE g.graph_id <> ALL (beside) ORDER BY first.created_at, first.run_id
    LOOP
        IF pg_try_advisory_xact_lock(hashtextextended(head.thread_id, 0)) THEN
            PERFORM 1 FROM run_heads h WHERE h.thread_id = head.thread_id AND h.run_id = head.run_id AND h.created_at <= due;
            IF FOUND THEN
                thread := head.thread_id;
                run := head.run_id;
                RETURN NEXT;
                RETURN;
            END IF;
        END IF;
    END LOOP;
END
$$;
