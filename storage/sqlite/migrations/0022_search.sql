-- The words of messages, for search: message_words has those of the messages that are indexed, search_pending the bodies that are not yet.
CREATE TABLE search_pending (body INTEGER PRIMARY KEY) STRICT;
CREATE VIRTUAL TABLE message_words USING fts5 (words, content = '', contentless_delete = 1, detail = 'none', tokenize = 'ascii');
CREATE INDEX events_body ON events (body) WHERE category = 'message';

CREATE TRIGGER words_follow AFTER DELETE ON event_bodies BEGIN
    DELETE FROM search_pending WHERE body = old.body;
    DELETE FROM message_words WHERE rowid = old.body;
END;
