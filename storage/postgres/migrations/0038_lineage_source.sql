-- Forks of a thread, those first that share most of its events.
DROP INDEX event_lineage_source;
CREATE INDEX event_lineage_source ON event_lineage (source_thread_id, seq, thread_id);
