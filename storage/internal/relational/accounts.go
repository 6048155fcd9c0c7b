package relational

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"understudy/deerflow/account"
	"understudy/internal/fault"
)

var errNoUser = fault.New(fault.NotFound, "user not found")

// accountColumns are the columns of accounts. email_key is the e-mail address in lower case.
const accountColumns = "account_id, email, email_key, password, role, setup, version, provider, created_at, subject"

func scanAccount(r Row) *account.User {
	return &account.User{
		ID: r.Text(0), Email: r.Text(1), Password: r.Text(3), Role: account.Role(r.Text(4)), Setup: r.Bool(5), Version: int(r.Int(6)), Provider: r.Text(7), CreatedAt: r.Time(8), Subject: r.Text(9),
	}
}

func accountArgs(u *account.User) []any {
	return []any{u.ID, u.Email, strings.ToLower(u.Email), u.Password, string(u.Role), u.Setup, u.Version, u.Provider, u.CreatedAt, u.Subject}
}

var (
	selectAccount  = same("SELECT " + accountColumns + " FROM accounts WHERE account_id = $1")
	accountByEmail = same("SELECT " + accountColumns + " FROM accounts WHERE email_key = $1")
	accountAt      = same("SELECT " + accountColumns + " FROM accounts WHERE provider = $1 AND subject = $2 AND subject <> ''")
	anyAdmin       = same("SELECT 1 FROM accounts WHERE role = 'admin' LIMIT 1")
	// holdAccounts lets one transaction at a time decide whether there is an administrator.
	holdAccounts  = differing("LOCK TABLE accounts IN SHARE ROW EXCLUSIVE MODE", "")
	insertAccount = same(insertInto("accounts", accountColumns) + " ON CONFLICT DO NOTHING")
	updateAccount = same("UPDATE accounts SET (" + accountColumns + ") = (" + marks(1, accountColumns) + ") WHERE account_id = $1 AND version = $11")
	emailOfOther  = same("SELECT 1 FROM accounts WHERE email_key = $1 AND account_id <> $2")

	selectGone = same("SELECT account_id, at FROM accounts_gone ORDER BY at LIMIT 1000")
	forgetGone = same("DELETE FROM accounts_gone WHERE account_id = $1 AND at = $2")

	countFailures  = same("SELECT count(*), min(at) FROM login_failures WHERE name = $1 AND at >= $2")
	insertFailure  = same("INSERT INTO login_failures (name, at) VALUES ($1, $2)")
	forgetFailures = same("DELETE FROM login_failures WHERE name = $1")
	oldFailures    = same("DELETE FROM login_failures WHERE at < $1")
)

// InsertUser implements account.Store.
func (s accountStore) InsertUser(ctx context.Context, u *account.User, first bool) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		if first {
			if _, err := tx.Affected(holdAccounts); err != nil {
				return err
			}
			if found, err := has(tx, anyAdmin); err != nil {
				return err
			} else if found {
				return account.ErrInitialized
			}
		}
		taken := fault.New(fault.Conflict, "an account with this e-mail address exists")
		return tx.change(taken, "insert account "+u.ID, insertAccount, accountArgs(u)...)
	})
}

// User implements account.Store.
func (s accountStore) User(ctx context.Context, id string) (*account.User, error) {
	return from(ctx, s.db.Read, func(q Querier) (*account.User, error) { return the(q, errNoUser, selectAccount, scanAccount, id) })
}

// UserByEmail implements account.Store.
func (s accountStore) UserByEmail(ctx context.Context, email string) (*account.User, error) {
	return from(ctx, s.db.Read, func(q Querier) (*account.User, error) {
		return the(q, errNoUser, accountByEmail, scanAccount, strings.ToLower(strings.TrimSpace(email)))
	})
}

// UserAt implements account.Store.
func (s accountStore) UserAt(ctx context.Context, provider, subject string) (*account.User, error) {
	return from(ctx, s.db.Read, func(q Querier) (*account.User, error) {
		return the(q, errNoUser, accountAt, scanAccount, provider, subject)
	})
}

// UpdateUser implements account.Store.
func (s accountStore) UpdateUser(ctx context.Context, u *account.User, was int) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		if _, err := tx.Affected(holdAccounts); err != nil {
			return err
		}
		if found, err := has(tx, emailOfOther, strings.ToLower(u.Email), u.ID); err != nil {
			return err
		} else if found {
			return account.ErrEmailTaken
		}
		changed := fault.New(fault.Conflict, "the account was changed meanwhile")
		return tx.change(changed, "update account "+u.ID, updateAccount, append(accountArgs(u), was)...)
	})
}

// HasAdmin implements account.Store.
func (s accountStore) HasAdmin(ctx context.Context) (bool, error) {
	return from(ctx, s.db.Read, func(q Querier) (bool, error) { return has(q, anyAdmin) })
}

// Gone implements account.Store.
func (s accountStore) Gone(ctx context.Context) ([]account.Gone, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]account.Gone, error) {
		return all(q, selectGone, func(r Row) account.Gone { return account.Gone{ID: r.Text(0), At: r.Time(1)} })
	})
}

// ForgetGone implements account.Store.
func (s accountStore) ForgetGone(ctx context.Context, g account.Gone) error {
	return s.db.Write(ctx, func(tx *Tx) error { return tx.Exec(forgetGone, g.ID, micros(g.At)) })
}

// Failures implements account.Store.
func (s accountStore) Failures(ctx context.Context, key string, since time.Time) (n int, oldest time.Time, err error) {
	err = s.db.Read(ctx, func(q Querier) error {
		_, err := one(q, countFailures, func(r Row) error {
			n, oldest = int(r.Int(0)), r.Time(1)
			return nil
		}, key, since)
		return err
	})
	return n, oldest, err
}

// AddFailure implements account.Store.
func (s accountStore) AddFailure(ctx context.Context, key string, at, forget time.Time) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		if err := tx.Exec(oldFailures, forget); err != nil {
			return fmt.Errorf("forget failures of sign-ins: %w", err)
		}
		return errors.Join(tx.Exec(insertFailure, key, at))
	})
}

// ForgetFailures implements account.Store. Mostly there are none, and nothing is written.
func (s accountStore) ForgetFailures(ctx context.Context, key string) error {
	if n, _, err := s.Failures(ctx, key, time.UnixMicro(1)); err != nil || n == 0 {
		return err
	}
	return s.db.Write(ctx, func(tx *Tx) error { return tx.Exec(forgetFailures, key) })
}
