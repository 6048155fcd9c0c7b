-- The words of messages, for search: message_words has those of the messages that are indexed, search_pending the bodies that are not yet.
CREATE TABLE search_pending (body bigint PRIMARY KEY);
CREATE TABLE message_words (
    body  bigint PRIMARY KEY REFERENCES event_bodies ON DELETE CASCADE,
    words tsvector NOT NULL
);
-- A search reads the pending list from end to end.
CREATE INDEX message_words_words ON message_words USING gin (words) WITH (gin_pending_list_limit = 512);
CREATE INDEX events_body ON events (body) WHERE category = 'message';
