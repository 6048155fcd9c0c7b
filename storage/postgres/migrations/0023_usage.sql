-- What runs used. usage_ended lists runs that have ended and are not in usage_days yet: sums by day (since 1970, UTC), kind and name, of an identity
-- (its SHA-256 in hexadecimal) and, with identity '', of everyone.
CREATE TABLE usage_ended (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity text COLLATE "C" NOT NULL,
    day      bigint NOT NULL,
    sums     bytea NOT NULL
);

CREATE TABLE usage_days (
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
