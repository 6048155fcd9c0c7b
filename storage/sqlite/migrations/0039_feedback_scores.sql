-- What was given under the feedback keys of a run, as a JSON object by key. NULL: nothing.
ALTER TABLE feedback ADD COLUMN scores BLOB;
