-- API keys: digest is the SHA-256 of the secret in hexadecimal, which is kept nowhere. scopes are separated by spaces; times are in microseconds, NULL never.
CREATE TABLE api_keys (
    key_id     TEXT    PRIMARY KEY,
    name       TEXT    NOT NULL,
    identity   TEXT    NOT NULL,
    scopes     TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at    INTEGER
) STRICT;
