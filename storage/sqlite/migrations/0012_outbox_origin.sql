-- The server that a webhook goes to, so that one that hangs holds up no other. What was queued before belongs to one origin: ''.
ALTER TABLE outbox ADD COLUMN origin TEXT NOT NULL DEFAULT '';
CREATE INDEX outbox_origin ON outbox (origin, due, id);
