-- Up to when events of a thread are gone with runs that were deleted, in microseconds: who resumes before then has missed some. 0: none are.
ALTER TABLE threads ADD COLUMN events_gone INTEGER NOT NULL DEFAULT 0;
