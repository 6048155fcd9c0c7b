package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
)

// useKeys checks the keys against the database, and returns a ring that encrypts; nil without keys. Only one that writes notes a new key.
func (s *Store) useKeys(ctx context.Context, keys [][]byte, writes bool) (*seal.Ring, error) {
	ring, err := seal.NewRing(keys)
	if err != nil {
		return nil, err
	}
	known := ""
	if err := s.pool.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", seal.MetaKey).Scan(&known); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	note, err := ring.Check(known)
	if err != nil || note == known || !writes {
		return ring, err
	}
	if known == "" {
		s.log.InfoContext(ctx, "encryption begins; run understudy encrypt to encrypt what is there. All servers of the database need the key", "key", ring.ID())
	}
	_, err = s.pool.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", seal.MetaKey, note)
	return ring, err
}

// checkpointJSON and metadataJSON prepare a checkpoint for its columns: what the database looks at is readable.
func (s *Store) checkpointJSON(data []byte) string {
	return string(s.ring.JSON(rows.JSON(data), seal.Deep, seal.CheckpointMembers...))
}

func (s *Store) metadataJSON(data []byte) string {
	return string(s.ring.JSON(rows.JSON(data), "", seal.MetadataMembers...))
}

// Encrypt encrypts a database with the first of the keys: also what is not encrypted, or has an older key. It returns the number of changed
// values. Servers may be running on it, with the same keys. It may be interrupted, and run again.
func Encrypt(ctx context.Context, opts Options) (changed int, err error) {
	s, err := Open(ctx, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.ring == nil {
		return 0, seal.ErrNoKey
	}
	if err := s.clearSearch(ctx); err != nil {
		return 0, err
	}
	found, err := s.pool.Query(ctx, `SELECT c.relname, a.attname, a.atttypid = 'jsonb'::regtype FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid IN ('bytea'::regtype, 'jsonb'::regtype)
		AND c.oid IN (SELECT to_regclass(t) FROM unnest($1::text[]) t) ORDER BY 1, 2`, secretTables)
	if err != nil {
		return 0, classify(err)
	}
	columns, err := pgx.CollectRows(found, pgx.RowToStructByPos[secret])
	if err != nil {
		return 0, classify(err)
	}
	for _, c := range columns {
		last := "(0,0)"
		for last != "" {
			var n int
			err := s.write(ctx, func(tx *Tx) (err error) {
				var next string
				if n, next, err = tx.encrypt(c, last); err == nil {
					last = next
				}
				return err
			})
			if changed += n; err != nil {
				return changed, fmt.Errorf("encrypt %s.%s: %w", c.Table, c.Column, err)
			}
		}
	}
	if len(opts.Unindexed) > 0 {
		err = s.write(ctx, func(tx *Tx) error { return tx.exec("DELETE FROM thread_metadata WHERE key = ANY($1)", opts.Unindexed) })
	}
	return changed, err
}

// secretTables are the tables with content.
var secretTables = strings.Fields(`checkpoints checkpoint_blobs checkpoint_writes snapshots shapes answers list_parts assistants assistant_versions threads runs run_kwargs
	run_completions crons outbox stream_records store_items event_bodies events transcript_nodes upstream_deleted update_queue model_calls run_spans sessions usage_ended servers server_logs`)

// secret is a column with bytes, or JSON.
type secret struct {
	Table, Column string
	JSON          bool
}

// encryptBatch is how many rows a transaction encrypts.
const encryptBatch = 500

// encrypt encrypts the rows of a column behind a place, and returns the last place; "" when there is nothing behind.
func (tx *Tx) encrypt(c secret, after string) (changed int, last string, err error) {
	type found struct {
		at    string
		value any
	}
	var list []found
	count := 0
	column := pgx.Identifier{c.Column}.Sanitize()
	deep, members, encode := "", seal.MetadataMembers, tx.store.metadataJSON
	if c.Column == "checkpoint" {
		deep, members, encode = seal.Deep, seal.CheckpointMembers, tx.store.checkpointJSON
	}
	ring := tx.store.ring
	text := fmt.Sprintf("SELECT ctid::text, %s FROM %s WHERE ctid > $1::tid AND %s IS NOT NULL ORDER BY ctid LIMIT %d FOR UPDATE", column, c.Table, column, encryptBatch)
	err = tx.query(text, func(r *row) error {
		count++
		last = r.Text(0)
		raw := append([]byte(nil), r.values[1]...)
		switch {
		case c.JSON:
			if r.fields[1].Format == pgx.BinaryFormatCode {
				raw = raw[1:]
			}
			if !ring.JSONCurrent(raw, deep, members...) {
				list = append(list, found{last, encode(r.Bytes(1))})
			}
		case !ring.Current(raw):
			list = append(list, found{last, r.Bytes(1)})
		}
		return nil
	}, after)
	if err != nil {
		return 0, "", err
	}
	for _, f := range list {
		if err := tx.exec(fmt.Sprintf("UPDATE %s SET %s = $2 WHERE ctid = $1::tid", c.Table, column), f.at, f.value); err != nil {
			return changed, "", err
		}
		changed++
	}
	if count == 0 {
		last = ""
	}
	return changed, last, nil
}
