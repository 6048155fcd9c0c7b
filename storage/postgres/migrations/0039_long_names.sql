-- An index takes no text of more than 2,704 bytes: that on names has their beginning.
DROP INDEX assistants_name;
CREATE INDEX assistants_name ON assistants (left(name, 256), assistant_id);
