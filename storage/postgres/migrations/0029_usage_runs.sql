-- usage_runs has what each ended run used whose row is there, and usage_sums the sums of these by day: a read model, which understudy rebuild makes anew.
-- usage_days has the sums of runs that are deleted, and of all that ended before this version. Servers of the version before add to it what is listed here, too.
ALTER TABLE usage_ended ADD COLUMN run_id text COLLATE "C" NOT NULL DEFAULT '';

CREATE TABLE usage_runs (
    day      bigint NOT NULL,
    run_id   text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    sums     bytea NOT NULL,
    PRIMARY KEY (day, run_id)
);

CREATE TABLE usage_sums (
    identity text COLLATE "C" NOT NULL,
    day      bigint NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    runs     bigint NOT NULL,
    errors   bigint NOT NULL,
    calls    bigint NOT NULL,
    input    bigint NOT NULL,
    output   bigint NOT NULL,
    total    bigint NOT NULL,
    PRIMARY KEY (identity, day, kind, name)
);
