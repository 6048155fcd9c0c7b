CREATE INDEX CONCURRENTLY store_items_embedding ON store_items (embedding, namespace, key);
