-- Accounts that were deleted, by whatever program: servers stop what acts for them. A row is deleted when nothing is left.
CREATE TABLE accounts_gone (
    account_id TEXT    PRIMARY KEY,
    at         INTEGER NOT NULL
) STRICT;
CREATE TRIGGER accounts_go AFTER DELETE ON accounts BEGIN
    INSERT OR REPLACE INTO accounts_gone (account_id, at) VALUES (old.account_id, strftime('%s', 'now') * 1000000);
END;
