CREATE INDEX CONCURRENTLY threads_expiry ON threads (expires_at, thread_id) WHERE expires_at IS NOT NULL;
