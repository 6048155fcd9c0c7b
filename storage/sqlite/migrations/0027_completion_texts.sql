-- The texts of a completion in an encrypted database, as JSON; the columns for them are NULL then.
ALTER TABLE run_completions ADD COLUMN texts BLOB;
