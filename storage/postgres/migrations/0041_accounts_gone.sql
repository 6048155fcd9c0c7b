-- Accounts that were deleted, by whatever program: servers stop what acts for them. A row is deleted when nothing is left.
CREATE TABLE accounts_gone (
    account_id text   COLLATE "C" PRIMARY KEY,
    at         bigint NOT NULL
);
CREATE FUNCTION account_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO accounts_gone (account_id, at) VALUES (old.account_id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (account_id) DO UPDATE SET at = excluded.at;
    RETURN NULL;
END
$$;
CREATE TRIGGER accounts_go AFTER DELETE ON accounts FOR EACH ROW EXECUTE FUNCTION account_gone();
