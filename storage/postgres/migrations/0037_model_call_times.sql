-- How long a model call took, in microseconds, and which of its run it was. NULL is unknown.
ALTER TABLE model_calls ADD COLUMN took bigint;
ALTER TABLE model_calls ADD COLUMN number bigint;
