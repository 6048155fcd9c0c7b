CREATE INDEX CONCURRENTLY usage_ended_run ON usage_ended (run_id);
