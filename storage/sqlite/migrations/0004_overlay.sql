-- The checkpoint whose messages a kept root `values` shows; '' for all other records.
ALTER TABLE stream_records ADD COLUMN checkpoint_id TEXT NOT NULL DEFAULT '';
