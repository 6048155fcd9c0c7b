-- Who an account is at its provider of single sign-on; '' for accounts with a password.
ALTER TABLE accounts ADD COLUMN subject text COLLATE "C" NOT NULL DEFAULT '';
CREATE UNIQUE INDEX accounts_subject ON accounts (provider, subject) WHERE subject <> '';
