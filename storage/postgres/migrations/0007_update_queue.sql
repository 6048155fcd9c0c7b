-- State updates of a thread that wait for their turn, across instances. Rows live as long as an update takes; those of servers that died lapse.
CREATE TABLE update_queue (
    thread_id text COLLATE "C",
    place     bigint GENERATED ALWAYS AS IDENTITY,
    lapses_at timestamptz NOT NULL,
    PRIMARY KEY (thread_id, place)
);
