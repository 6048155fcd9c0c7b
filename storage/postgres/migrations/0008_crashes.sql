-- How often in a row a server died while it executed a run, and whether its server executes it as the only one that is suspected of that.
ALTER TABLE runs ADD COLUMN crashes bigint NOT NULL DEFAULT 0, ADD COLUMN turn bigint NOT NULL DEFAULT 0;
