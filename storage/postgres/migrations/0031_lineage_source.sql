-- Forks of a thread: an import shares the bodies of their events.
CREATE INDEX event_lineage_source ON event_lineage (source_thread_id, thread_id);
