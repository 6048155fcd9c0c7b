-- How often in a row a server died while it executed a run, and whether its server executes it as the only one that is suspected of that.
ALTER TABLE runs ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
