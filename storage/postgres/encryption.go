package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	// Servers that start at the same moment may each have another note: the first one counts, and the others check their keys against it.
	for range notesAtOnce {
		known, err := keyNote(ctx, s.pool)
		if err != nil {
			return nil, err
		}
		note, err := keys.Check(ctx, known)
		if err != nil || note == known {
			return keys, err
		}
		if err := s.allRead(ctx, known, keys.Writes()); err != nil {
			return nil, err
		}
		if err := keys.Leave(ctx, known); err != nil {
			return nil, err
		}
		text, args := "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING", []any{seal.MetaKey, note}
		if known != "" {
			text, args = "UPDATE meta SET value = $2 WHERE key = $1 AND value = $3", append(args, known)
		}
		done, err := s.pool.Exec(ctx, text, args...)
		if err != nil {
			return nil, err
		}
		if done.RowsAffected() == 0 {
			continue
		}
		if known == "" && !opts.encrypting {
			s.log.InfoContext(ctx, "encryption begins; run understudy encrypt if the database has older rows. All servers of the database need the key", "key", keys.ID())
		}
		return keys, nil
	}
	return nil, errors.New("other servers keep changing the key of the database: give all the same keys, the current one first")
}

// notesAtOnce is how many servers may note their key before this one does.
const notesAtOnce = 20

// keyTable implements seal.Table.
type keyTable struct{ store *Store }

// Rows implements seal.Table.
func (t keyTable) Rows(ctx context.Context, from, below string, fn func(key, value string) error) error {
	ctx, cancel := t.store.patient(ctx)
	defer cancel()
	return classify(keyRows(ctx, t.store.metaPool, from, below, fn))
}

// asker is a connection or a pool of them.
type asker interface {
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

func keyRows(ctx context.Context, db asker, from, below string, fn func(key, value string) error) error {
	found, err := db.Query(ctx, `SELECT key, value FROM meta WHERE key COLLATE "C" >= $1 AND key COLLATE "C" < $2 ORDER BY key COLLATE "C"`, from, below)
	if err != nil {
		return err
	}
	var key, value string
	_, err = pgx.ForEachRow(found, []any{&key, &value}, func() error { return fn(key, value) })
	return err
}

// keyNote returns what a database says about the key it is encrypted with; "" if it is not encrypted.
func keyNote(ctx context.Context, db asker) (known string, err error) {
	if err = db.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", seal.MetaKey).Scan(&known); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return known, err
}

// inspected is the table meta of a database that is only read.
type inspected struct{ conn *pgx.Conn }

// Put implements seal.Table.
func (inspected) Put(context.Context, map[string]string, bool) error { return errOnlyRead }

var errOnlyRead = errors.New("the database is only read")

// Rows implements seal.Table.
func (t inspected) Rows(ctx context.Context, from, below string, fn func(key, value string) error) error {
	return keyRows(ctx, t.conn, from, below, fn)
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
	_, err := t.store.metaPool.Exec(ctx, text, keys, values)
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
	opts.encrypting = true
	s, err := Open(ctx, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !s.keys.Encrypts() {
		return 0, seal.ErrNoKey
	}
	left, err := s.keys.Left(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.clearSearch(ctx); err != nil {
		return 0, err
	}
	columns, err := s.secrets(ctx)
	if err != nil {
		return 0, err
	}
	// A server may copy a value to a place that was passed, so nothing is left only when all places were passed once more and none had changed.
	for pass := 1; ; pass++ {
		n, err := s.encryptAll(ctx, columns)
		if changed += n; err != nil {
			return changed, err
		}
		if n == 0 && pass > 1 {
			if err := s.hideNames(ctx); err != nil {
				return changed, err
			}
			_, err := s.pool.Exec(ctx, "DELETE FROM meta WHERE key = ANY($1)", left)
			return changed, classify(err)
		}
		if pass > encryptPasses {
			return changed, errStillStale
		}
		// Transactions that may have read a value before it was encrypted have ended after this.
		if err := s.writePatiently(ctx, func(tx *Tx) error {
			tx.lockEverything()
			return tx.send()
		}); err != nil {
			return changed, err
		}
	}
}

// encryptPasses is how many passes find something before it is clear that it does not end.
const encryptPasses = 10

var errStillStale = errors.New("values that are not encrypted with the current key keep appearing: a server or another program writes into the database without it; " +
	"give all the same LANGGRAPH_AES_KEY, restart them, and run this again")

// secrets returns the columns with content.
func (s *Store) secrets(ctx context.Context) ([]secret, error) {
	found, err := s.pool.Query(ctx, `SELECT c.relname, a.attname, a.atttypid = 'jsonb'::regtype, k.names, k.types FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid, LATERAL (
			SELECT coalesce(array_agg(k.attname::text ORDER BY place), '{}') names, coalesce(array_agg(format_type(k.atttypid, NULL) ORDER BY place), '{}') types
			FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY p (number, place), pg_attribute k WHERE i.indrelid = c.oid AND i.indisprimary AND k.attrelid = c.oid AND k.attnum = p.number) k
		WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid IN ('bytea'::regtype, 'jsonb'::regtype)
		AND c.oid IN (SELECT to_regclass(t) FROM unnest($1::text[]) t) ORDER BY 1, 2`, secretTables)
	if err != nil {
		return nil, classify(err)
	}
	columns, err := pgx.CollectRows(found, pgx.RowToStructByPos[secret])
	for _, c := range columns {
		if len(c.Key) == 0 {
			return nil, fmt.Errorf("the table %s has no primary key", c.Table)
		}
	}
	return columns, classify(err)
}

// writePatiently is write for transactions that lock many rows, and so collide with those of busy servers again and again: it tries for a minute.
func (s *Store) writePatiently(ctx context.Context, fn func(*Tx) error) error {
	for until := time.Now().Add(time.Minute); ; {
		err := s.write(ctx, fn)
		if !collided(err) || time.Now().After(until) {
			return err
		}
	}
}

// encryptAll encrypts once what has not the current key, and returns the number of values.
func (s *Store) encryptAll(ctx context.Context, columns []secret) (changed int, err error) {
	for _, c := range columns {
		for from := (place{limit: encryptBatch}); !from.end; {
			var n int
			var next place // set by fn, which may run again
			if err := s.writePatiently(ctx, func(tx *Tx) (err error) {
				n, next, err = tx.encrypt(c, from)
				return err
			}); err != nil {
				return changed, fmt.Errorf("encrypt %s.%s: %w", c.Table, c.Column, err)
			}
			changed, from = changed+n, next
		}
	}
	n, err := s.SealCompletions(ctx)
	return changed + n, err
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
	run_completions crons cron_occurrences outbox stream_records store_items event_bodies events transcript_nodes upstream_deleted update_queue model_calls run_spans sessions usage_ended usage_runs servers server_logs`)

// secret is a column with bytes, or JSON, in a table with a primary key of columns Key.
type secret struct {
	Table, Column string
	JSON          bool
	Key, Types    []string
}

// place is where a walk over a table continues.
type place struct {
	after []string // the key of the last row; nil at the beginning
	limit int      // of rows
	end   bool
}

const (
	// encryptBatch is how many rows a transaction encrypts, encryptBytes after how many bytes it looks at no more.
	encryptBatch = 500
	encryptBytes = 4 << 20
)

// query returns the statement that reads the rows behind a place, locked. It follows the primary key, which stays whatever servers write into other columns.
func (c secret) query(from place) (text string, args []any) {
	column := pgx.Identifier{c.Column}.Sanitize()
	var keys, texts, after []string
	for i, name := range c.Key {
		name = pgx.Identifier{c.Table, name}.Sanitize() // without its table ORDER BY would mean the text
		keys, texts, after = append(keys, name), append(texts, name+"::text"), append(after, fmt.Sprintf("$%d::text::%s", i+1, c.Types[i]))
	}
	key, behind := strings.Join(keys, ", "), ""
	if from.after != nil {
		behind = fmt.Sprintf("(%s) > (%s) AND ", key, strings.Join(after, ", "))
		for _, value := range from.after {
			args = append(args, value)
		}
	}
	return fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s%s IS NOT NULL ORDER BY %s LIMIT %d FOR UPDATE", strings.Join(texts, ", "), column, c.Table, behind, column, key, from.limit), args
}

// update returns the statement that replaces a value; its arguments are the key and the value.
func (c secret) update() string {
	var is []string
	for i, name := range c.Key {
		is = append(is, fmt.Sprintf("%s = $%d::text::%s", pgx.Identifier{name}.Sanitize(), i+1, c.Types[i]))
	}
	return fmt.Sprintf("UPDATE %s SET %s = $%d WHERE %s", c.Table, pgx.Identifier{c.Column}.Sanitize(), len(is)+1, strings.Join(is, " AND "))
}

// encrypt encrypts the rows of a column behind a place, and returns the next place.
func (tx *Tx) encrypt(c secret, from place) (changed int, next place, err error) {
	deep, members, encode := "", seal.MetadataMembers, tx.metadataJSON
	if c.Column == "checkpoint" {
		deep, members, encode = seal.Deep, seal.CheckpointMembers, tx.checkpointJSON
	}
	ring, col := tx.ring, len(c.Key)
	var list [][]any // arguments of update
	count, bytes := 0, 0
	// Without statistics Postgres would rather sort the table than follow its key.
	if err := tx.exec("SET LOCAL enable_sort = off"); err != nil {
		return 0, from, err
	}
	if err := tx.exec("SET LOCAL enable_bitmapscan = off"); err != nil {
		return 0, from, err
	}
	text, args := c.query(from)
	err = tx.query(text, func(r *row) error {
		count++
		next.after = make([]string, col)
		update := make([]any, col, col+1)
		for i := range col {
			next.after[i] = r.Text(i)
			update[i] = next.after[i]
		}
		raw := append([]byte(nil), r.values[col]...)
		switch {
		case c.JSON:
			if r.fields[col].Format == pgx.BinaryFormatCode {
				raw = raw[1:]
			}
			if !ring.JSONCurrent(raw, deep, members...) {
				list = append(list, append(update, encode(r.Bytes(col))))
			}
		case !ring.Current(raw):
			list = append(list, append(update, r.Bytes(col)))
		}
		if bytes += len(raw); bytes > encryptBytes {
			return errStop
		}
		return nil
	}, args...)
	if err != nil {
		return 0, from, err
	}
	for _, args := range list {
		if err := tx.exec(c.update(), args...); err != nil {
			return 0, from, err
		}
	}
	switch {
	case bytes > encryptBytes: // what was read behind is thrown away: next time fewer rows
		next.limit = count
	default:
		next.limit, next.end = min(2*from.limit, encryptBatch), count < from.limit
	}
	return len(list), next, nil
}
