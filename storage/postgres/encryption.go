package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"understudy/internal/encryption"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
)

// useKeys checks the keys against the database, and returns the keyring that encrypts.
func (s *Store) useKeys(ctx context.Context, opts Options) (*seal.Keyring, error) {
	keys, err := seal.OpenKeyring(ctx, seal.Settings{Keys: opts.Keys, Handlers: opts.Handlers, Unindexed: opts.Unindexed, Log: s.log}, keyTable{s})
	if err != nil {
		return nil, err
	}
	known := ""
	if err := s.pool.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", seal.MetaKey).Scan(&known); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	note, err := keys.Check(ctx, known)
	if err != nil || note == known {
		return keys, err
	}
	if known == "" {
		s.log.InfoContext(ctx, "encryption begins; run understudy encrypt to encrypt what is there. All servers of the database need the key", "key", keys.ID())
	}
	_, err = s.pool.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", seal.MetaKey, note)
	return keys, err
}

// keyTable implements seal.Table.
type keyTable struct{ store *Store }

// Rows implements seal.Table. It has a connection of its own: those of the pool may all be waiting for a data key.
func (t keyTable) Rows(ctx context.Context, from, below string, fn func(key, value string) error) (err error) {
	ctx, cancel := t.store.patient(ctx)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, t.store.pool.Config().ConnConfig)
	if err != nil {
		return classify(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	found, err := conn.Query(ctx, `SELECT key, value FROM meta WHERE key COLLATE "C" >= $1 AND key COLLATE "C" < $2 ORDER BY key COLLATE "C"`, from, below)
	if err != nil {
		return classify(err)
	}
	var key, value string
	_, err = pgx.ForEachRow(found, []any{&key, &value}, func() error { return fn(key, value) })
	return classify(err)
}

// UseHandlers makes what handlers have encrypted readable. It does not keep them.
func (d *Database) UseHandlers(ctx context.Context, h encryption.Handlers) error {
	return seal.LoadDataKeys(ctx, h, keyTable{d.store})
}

// CursorKey returns the key for cursors of all servers of the database (package cursor).
func (s *Store) CursorKey(ctx context.Context) ([]byte, error) {
	return seal.CursorKey(ctx, keyTable{s})
}

// Put implements seal.Table.
func (t keyTable) Put(ctx context.Context, rows map[string]string, replace bool) error {
	text := "INSERT INTO meta (key, value) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT (key) DO NOTHING"
	if replace {
		text = "INSERT INTO meta (key, value) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
	}
	var keys, values []string
	for _, key := range slices.Sorted(maps.Keys(rows)) { // in one order, so that servers do not wait for each other
		keys, values = append(keys, key), append(values, rows[key])
	}
	ctx, cancel := t.store.patient(ctx)
	defer cancel()
	_, err := t.store.pool.Exec(ctx, text, keys, values)
	return classify(err)
}

// checkpointJSON and metadataJSON prepare a checkpoint for its columns: what the database looks at is readable.
func (tx *Tx) checkpointJSON(data []byte) string {
	return string(tx.ring.JSON(rows.JSON(data), seal.Deep, seal.CheckpointMembers...))
}

func (tx *Tx) metadataJSON(data []byte) string {
	return string(tx.ring.JSON(rows.JSON(data), "", seal.MetadataMembers...))
}

// Encrypt encrypts a database with the first of the keys: also what is not encrypted, or has an older key. It returns the number of changed
// values. Servers may be running on it, with the same keys. It may be interrupted, and run again.
func Encrypt(ctx context.Context, opts Options) (changed int, err error) {
	s, err := Open(ctx, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !s.keys.Encrypts() {
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
	n, err := s.SealCompletions(ctx)
	if changed += n; err != nil {
		return changed, err
	}
	return changed, s.hideNames(ctx)
}

// Encrypts implements relational.Writer.
func (tx *Tx) Encrypts() bool { return tx.ring != nil }

// hideNames removes what must not be readable from the index of threads.
func (s *Store) hideNames(ctx context.Context) error {
	hidden := s.keys.Hidden()
	if hidden == nil {
		return nil
	}
	found, err := s.pool.Query(ctx, "SELECT DISTINCT key FROM thread_metadata")
	if err != nil {
		return classify(err)
	}
	names, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		return classify(err)
	}
	if err := s.keys.Learn(ctx, names); err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !hidden(name) })
	return s.write(ctx, func(tx *Tx) error { return tx.exec("DELETE FROM thread_metadata WHERE key = ANY($1)", names) })
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
	deep, members, encode := "", seal.MetadataMembers, tx.metadataJSON
	if c.Column == "checkpoint" {
		deep, members, encode = seal.Deep, seal.CheckpointMembers, tx.checkpointJSON
	}
	ring := tx.ring
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
