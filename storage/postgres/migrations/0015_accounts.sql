-- Accounts of people who sign in to DeerFlow's web UI. email_key is the e-mail address in lower case.
CREATE TABLE accounts (
    account_id text COLLATE "C" PRIMARY KEY,
    email      text    NOT NULL,
    email_key  text    COLLATE "C" NOT NULL UNIQUE,
    password   text    NOT NULL,
    role       text    NOT NULL,
    setup      boolean NOT NULL,
    version    bigint  NOT NULL,
    provider   text    NOT NULL,
    created_at bigint  NOT NULL
);

-- Failed attempts to sign in, by network address and by account.
CREATE TABLE login_failures (
    name text   COLLATE "C" NOT NULL,
    at   bigint NOT NULL
);
CREATE INDEX login_failures_name ON login_failures (name, at);
CREATE INDEX login_failures_at ON login_failures (at);

-- What users think of runs.
CREATE TABLE feedback (
    feedback_id text   COLLATE "C" PRIMARY KEY,
    thread_id   text   COLLATE "C" NOT NULL,
    run_id      text   COLLATE "C" NOT NULL,
    account_id  text   COLLATE "C" NOT NULL,
    message_id  text,
    rating      bigint NOT NULL,
    comment     text,
    created_at  bigint NOT NULL,
    UNIQUE (thread_id, run_id, account_id)
);
