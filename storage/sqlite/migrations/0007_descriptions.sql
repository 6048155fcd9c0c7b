-- What the graph alone can say of a checkpoint, and which run wrote it, stand in its row: a table of their own was two pages more for each.
ALTER TABLE checkpoints ADD COLUMN run_id TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN shape TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN tasks BLOB;
UPDATE checkpoints SET (run_id, shape, tasks) = (s.run_id, s.shape, s.tasks) FROM snapshots s
    WHERE s.thread_id = checkpoints.thread_id AND s.checkpoint_ns = checkpoints.checkpoint_ns AND s.checkpoint_id = checkpoints.checkpoint_id;
DROP TABLE snapshots;
