-- Read models of the log (package eventstore/readmodel), made by a follower with offsets in log_offsets. What name, at and ref say depends on the model.
CREATE TABLE read_models (
    model         text COLLATE "C" NOT NULL,
    thread_id     text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,
    seq           bigint NOT NULL,
    at            bigint NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    ref           bigint NOT NULL,
    PRIMARY KEY (model, thread_id, name, seq)
);
CREATE INDEX read_models_branches ON read_models (name, thread_id, seq) WHERE model = 'branches';
CREATE INDEX read_models_heads ON read_models (at, thread_id, seq) WHERE model = 'heads';
CREATE INDEX read_models_timeline ON read_models (at, thread_id, seq) WHERE model = 'timeline';
