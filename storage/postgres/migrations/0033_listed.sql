-- updated_at as it was when the items of lists in metadata were added to thread_metadata. A thread with another updated_at is added by a sweep.
ALTER TABLE threads ADD COLUMN listed bigint;
