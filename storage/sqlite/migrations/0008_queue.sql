-- The queue by graph: a claim passes over graphs of which enough run already, however many of their runs wait.
ALTER TABLE run_heads ADD COLUMN graph_id TEXT NOT NULL DEFAULT '';
UPDATE run_heads SET graph_id = (SELECT graph_id FROM runs WHERE runs.run_id = run_heads.run_id);
CREATE INDEX run_heads_graph ON run_heads (graph_id, created_at, run_id);
