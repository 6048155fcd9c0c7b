-- A row of stream_records with records > 0 is a pack of so many, from (ms, n) to (last_ms, last_n). Rows of older servers are single records, also those
-- that they write later. They do not read packs, and leave them out.
ALTER TABLE stream_records
    ADD COLUMN last_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN last_n bigint NOT NULL DEFAULT 0,
    ADD COLUMN records integer NOT NULL DEFAULT 0;
