-- The limit that ended a run early, NULL when there was none: one of the words of graph.StopReason.
ALTER TABLE run_completions ADD COLUMN stop_reason TEXT;
