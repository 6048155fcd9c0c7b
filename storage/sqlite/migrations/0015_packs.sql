-- A row of stream_records with records > 0 is a pack of so many, from (ms, n) to (last_ms, last_n). Rows of older versions are single records.
ALTER TABLE stream_records ADD COLUMN last_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stream_records ADD COLUMN last_n INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stream_records ADD COLUMN records INTEGER NOT NULL DEFAULT 0;
