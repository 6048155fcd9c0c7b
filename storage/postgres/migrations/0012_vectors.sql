-- Semantic search: what of an item is embedded as put (NULL the configured fields, false nothing, or a JSON list of paths), and the
-- configuration that its vectors follow ('': they are not made yet).
ALTER TABLE store_items ADD COLUMN indexed text COLLATE "C";
ALTER TABLE store_items ADD COLUMN embedding text COLLATE "C" NOT NULL DEFAULT '';

-- The vectors of an item's texts, of length one. Those of different models are not comparable. Where pgvector is installed, servers add
-- an index for their model (storage/postgres/vectors.go).
CREATE TABLE store_vectors (
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    number    integer NOT NULL,
    model     text COLLATE "C" NOT NULL,
    vector    real[] NOT NULL,
    PRIMARY KEY (namespace, key, number),
    FOREIGN KEY (namespace, key) REFERENCES store_items (namespace, key) ON DELETE CASCADE
);
