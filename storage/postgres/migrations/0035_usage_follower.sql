-- What runs used is added by a follower of the log with offsets in log_offsets, which begins at the end of each log: all before is in the sums, or listed in
-- usage_ended by the version before. seq is how far the follower is, position where it began.
-- Servers of the version before list there, and add what they list.
INSERT INTO log_offsets (follower, thread_id, created_at, seq, position)
SELECT 'usage', t.thread_id, t.created_at, t.last, t.last
FROM (SELECT thread_id, created_at, COALESCE((SELECT MAX(e.seq) FROM events e WHERE e.thread_id = threads.thread_id), 0) AS last FROM threads) t
ON CONFLICT DO NOTHING;
UPDATE log_offsets SET seq = l.seq, position = l.seq
FROM (SELECT e.thread_id, MIN(e.seq) - 1 AS seq FROM usage_ended u JOIN runs r ON r.run_id = u.run_id
      JOIN events e ON e.thread_id = r.thread_id AND e.run_id = r.run_id AND e.type IN ('run.end', 'run.error') GROUP BY e.thread_id) l
WHERE log_offsets.follower = 'usage' AND log_offsets.thread_id = l.thread_id;
