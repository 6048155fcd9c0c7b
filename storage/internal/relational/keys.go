package relational

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"understudy/access/audit"
	"understudy/auth"
	"understudy/internal/fault"
)

var errNoKey = fault.New(fault.NotFound, "API key not found")

const keyColumns = "key_id, name, identity, scopes, digest, created_at, expires_at, revoked_at, used_at"

func scanKey(r Row) *auth.Key {
	return &auth.Key{
		ID: r.Text(0), Name: r.Text(1), Identity: r.Text(2), Scopes: strings.Fields(r.Text(3)), Digest: r.Text(4), CreatedAt: r.Time(5), ExpiresAt: r.Time(6), RevokedAt: r.Time(7), UsedAt: r.Time(8),
	}
}

var (
	insertKey = same(insertInto("api_keys", keyColumns))
	keysOf    = differing("SELECT "+keyColumns+" FROM api_keys WHERE key_id = ANY($1)", "SELECT "+keyColumns+" FROM api_keys WHERE key_id IN (SELECT value FROM json_each($1))")
	// Keys are few, and this is asked about crons.
	keysOfIdentity = same("SELECT " + keyColumns + " FROM api_keys WHERE identity = $1")
	selectKeys     = same("SELECT " + keyColumns + " FROM api_keys ORDER BY created_at, key_id")
	expireKey      = same("UPDATE api_keys SET expires_at = CASE WHEN expires_at < $2 THEN expires_at ELSE $2 END WHERE key_id = $1")
	revokeKey      = same("UPDATE api_keys SET revoked_at = coalesce(revoked_at, $2) WHERE key_id = $1")
	useKey         = same("UPDATE api_keys SET used_at = $2 WHERE key_id = $1 AND (used_at IS NULL OR used_at < $2)")
)

// InsertKey implements auth.KeyStore.
func (s keyStore) InsertKey(ctx context.Context, k *auth.Key) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		if err := tx.Exec(insertKey, k.ID, k.Name, k.Identity, strings.Join(k.Scopes, " "), k.Digest, k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.UsedAt); err != nil {
			return err
		}
		return tx.auditKey(ctx, s.now(), audit.KeyCreated, k.ID, describeKey(k))
	})
}

// KeysOf implements auth.KeyStore.
func (s keyStore) KeysOf(ctx context.Context, ids []string) ([]*auth.Key, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*auth.Key, error) { return all(q, keysOf, scanKey, ids) })
}

// KeysOfIdentity implements auth.KeyStore.
func (s keyStore) KeysOfIdentity(ctx context.Context, identity string) ([]*auth.Key, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*auth.Key, error) { return all(q, keysOfIdentity, scanKey, identity) })
}

// Keys implements auth.KeyStore.
func (s keyStore) Keys(ctx context.Context) ([]*auth.Key, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*auth.Key, error) { return all(q, selectKeys, scanKey) })
}

// ExpireKey implements auth.KeyStore.
func (s keyStore) ExpireKey(ctx context.Context, id string, at time.Time) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		if err := tx.change(errNoKey, "expire API key "+id, expireKey, id, at); err != nil {
			return err
		}
		return tx.auditKey(ctx, s.now(), audit.KeyExpires, id, "until "+at.UTC().Format(time.RFC3339))
	})
}

// RevokeKey implements auth.KeyStore.
func (s keyStore) RevokeKey(ctx context.Context, id string, at time.Time) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		if err := tx.change(errNoKey, "revoke API key "+id, revokeKey, id, at); err != nil {
			return err
		}
		return tx.auditKey(ctx, s.now(), audit.KeyRevoked, id, "")
	})
}

// UseKeys implements auth.KeyStore. All servers write keys in one order, so that they do not wait for each other.
func (s keyStore) UseKeys(ctx context.Context, used map[string]time.Time) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, id := range slices.Sorted(maps.Keys(used)) {
			if err := tx.Exec(useKey, id, used[id]); err != nil {
				return err
			}
		}
		return nil
	})
}
