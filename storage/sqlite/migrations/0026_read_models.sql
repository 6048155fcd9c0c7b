-- Read models of the log (package eventstore/readmodel), made by a follower with offsets in log_offsets. What name, at and ref say depends on the model.
CREATE TABLE read_models (
    model         TEXT    NOT NULL,
    thread_id     TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    run_id        TEXT    NOT NULL,
    checkpoint_id TEXT    NOT NULL,
    ref           INTEGER NOT NULL,
    PRIMARY KEY (model, thread_id, name, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX read_models_branches ON read_models (name, thread_id, seq) WHERE model = 'branches';
CREATE INDEX read_models_heads ON read_models (at, thread_id, seq) WHERE model = 'heads';
CREATE INDEX read_models_timeline ON read_models (at, thread_id, seq) WHERE model = 'timeline';
