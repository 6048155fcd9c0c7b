-- 5b is [, 7b is {: metadata that is encrypted may have lists.
CREATE INDEX CONCURRENTLY threads_unlisted ON threads (updated_at, thread_id) WHERE listed IS DISTINCT FROM updated_at AND (position('\x5b'::bytea IN metadata) > 0 OR substr(metadata, 1, 1) <> '\x7b'::bytea);
