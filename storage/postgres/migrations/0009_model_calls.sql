-- Model calls of runs that are not over: what run.end adds up. NULL is unknown.
CREATE TABLE model_calls (
    run_id        text COLLATE "C",
    call_id       text COLLATE "C",
    message_id    text COLLATE "C" NOT NULL,
    caller        text COLLATE "C" NOT NULL,
    model         text COLLATE "C" NOT NULL,
    input_tokens  bigint,
    output_tokens bigint,
    total_tokens  bigint,
    PRIMARY KEY (run_id, call_id)
);
