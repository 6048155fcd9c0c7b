-- 5b is [, 7b is {: metadata that is encrypted may have lists.
CREATE INDEX threads_unlisted ON threads (updated_at, thread_id) WHERE listed IS NOT updated_at AND (instr(metadata, x'5b') > 0 OR substr(metadata, 1, 1) <> x'7b');
