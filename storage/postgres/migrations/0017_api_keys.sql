-- API keys: digest is the SHA-256 of the secret in hexadecimal, which is kept nowhere. scopes are separated by spaces; times are in microseconds, NULL never.
CREATE TABLE api_keys (
    key_id     text   COLLATE "C" PRIMARY KEY,
    name       text   NOT NULL,
    identity   text   NOT NULL,
    scopes     text   NOT NULL,
    digest     text   NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    used_at    bigint
);
