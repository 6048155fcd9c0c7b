-- Semantic search: what of an item is embedded as put (NULL the configured fields, false nothing, or a JSON list of paths), and the
-- configuration that its vectors follow ('': they are not made yet).
ALTER TABLE store_items ADD COLUMN indexed TEXT;
ALTER TABLE store_items ADD COLUMN embedding TEXT NOT NULL DEFAULT '';
CREATE INDEX store_items_embedding ON store_items (embedding, namespace, key);

-- The vectors of an item's texts, of length one. Those of different models are not comparable.
CREATE TABLE store_vectors (
    namespace TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    number    INTEGER NOT NULL,
    model     TEXT    NOT NULL,
    vector    BLOB    NOT NULL, -- little-endian float32
    PRIMARY KEY (namespace, key, number),
    FOREIGN KEY (namespace, key) REFERENCES store_items (namespace, key) ON DELETE CASCADE
) STRICT;
