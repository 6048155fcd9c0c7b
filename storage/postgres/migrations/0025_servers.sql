-- The servers of this database: what each reports of itself every few seconds, and the last lines of their logs. at is in microseconds.
CREATE TABLE servers (
    server text COLLATE "C" PRIMARY KEY,
    at     bigint NOT NULL,
    body   bytea NOT NULL
);

CREATE TABLE server_logs (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    server text COLLATE "C" NOT NULL,
    at     bigint NOT NULL,
    lines  bytea NOT NULL
);
CREATE INDEX server_logs_at ON server_logs (at);
CREATE INDEX server_logs_server ON server_logs (server, id);
