package langgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"understudy/store"
	"understudy/transfer"
)

// postgresTables are the steps by which langgraph-checkpoint-postgres and its store create their
// tables; the index of a step is its number. They are recorded as those packages do it, so that
// setup() finds nothing to do.
var postgresTables = []struct {
	migrations string
	steps      []string
}{
	{"checkpoint_migrations", []string{
		"CREATE TABLE IF NOT EXISTS checkpoint_migrations (v INTEGER PRIMARY KEY)",
		`CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
			parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB NOT NULL, metadata JSONB NOT NULL DEFAULT '{}',
			PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))`,
		`CREATE TABLE IF NOT EXISTS checkpoint_blobs (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', channel TEXT NOT NULL,
			version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA, PRIMARY KEY (thread_id, checkpoint_ns, channel, version))`,
		`CREATE TABLE IF NOT EXISTS checkpoint_writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
			task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, blob BYTEA NOT NULL,
			PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))`,
		"ALTER TABLE checkpoint_blobs ALTER COLUMN blob DROP NOT NULL",
		"SELECT 1",
		"CREATE INDEX IF NOT EXISTS checkpoints_thread_id_idx ON checkpoints (thread_id)",
		"CREATE INDEX IF NOT EXISTS checkpoint_blobs_thread_id_idx ON checkpoint_blobs (thread_id)",
		"CREATE INDEX IF NOT EXISTS checkpoint_writes_thread_id_idx ON checkpoint_writes (thread_id)",
		"ALTER TABLE checkpoint_writes ADD COLUMN IF NOT EXISTS task_path TEXT NOT NULL DEFAULT ''",
	}},
	{"store_migrations", []string{
		`CREATE TABLE IF NOT EXISTS store (prefix text NOT NULL, key text NOT NULL, value jsonb NOT NULL,
			created_at TIMESTAMP WITH TIME ZONE DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP WITH TIME ZONE DEFAULT CURRENT_TIMESTAMP,
			PRIMARY KEY (prefix, key))`,
		"CREATE INDEX IF NOT EXISTS store_prefix_idx ON store USING btree (prefix text_pattern_ops)",
		"ALTER TABLE store ADD COLUMN IF NOT EXISTS expires_at TIMESTAMP WITH TIME ZONE, ADD COLUMN IF NOT EXISTS ttl_minutes INT",
		"CREATE INDEX IF NOT EXISTS idx_store_expires_at ON store (expires_at) WHERE expires_at IS NOT NULL",
	}},
}

// Prepare implements transfer.Sink.
func (p *Postgres) Prepare(ctx context.Context) error {
	for _, t := range postgresTables {
		last := len(t.steps) - 1
		if err := p.known(ctx, t.migrations, last); err != nil {
			return p.explain(err)
		}
		if err := pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+t.migrations+" (v INTEGER PRIMARY KEY)"); err != nil {
				return err
			}
			at := -1
			if err := tx.QueryRow(ctx, "SELECT coalesce(max(v), -1) FROM "+t.migrations).Scan(&at); err != nil {
				return err
			}
			for v := at + 1; v <= last; v++ {
				if _, err := tx.Exec(ctx, t.steps[v]); err != nil {
					return fmt.Errorf("step %d of %s: %w", v, t.migrations, err)
				}
				if _, err := tx.Exec(ctx, "INSERT INTO "+t.migrations+" (v) VALUES ($1)", v); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return p.explain(err)
		}
	}
	return p.explain(p.look(ctx))
}

// noNUL removes the character that jsonb refuses, as LangGraph's savers do.
func noNUL(text json.RawMessage) string {
	if !bytes.Contains(text, []byte(`\u0000`)) {
		return string(text)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(text)
	}
	out, err := json.Marshal(withoutNUL(v))
	if err != nil {
		return string(text)
	}
	return string(out)
}

// withoutNUL removes NUL from all texts of a JSON value.
func withoutNUL(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", "")
	case []any:
		for i := range v {
			v[i] = withoutNUL(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = withoutNUL(v[k])
		}
	}
	return v
}

// Put implements transfer.Sink.
func (p *Postgres) Put(ctx context.Context, thread string, steps []*transfer.Step) error {
	batch := &pgx.Batch{}
	given := map[blobKey]bool{}
	for _, s := range steps {
		for i := range s.Blobs {
			b := &s.Blobs[i]
			if key := (blobKey{s.NS, b.Channel, b.Version}); given[key] {
				continue
			} else {
				given[key] = true
			}
			var data any = b.Bytes()
			if b.Type == "empty" {
				data = nil
			}
			batch.Queue("INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
				thread, s.NS, b.Channel, b.Version, b.Type, data)
		}
		metadata := s.Metadata
		if len(metadata) == 0 {
			metadata = json.RawMessage("{}")
		}
		var parent any
		if s.Parent != "" {
			parent = string(s.Parent)
		}
		batch.Queue("INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata) VALUES ($1, $2, $3, $4, $5::jsonb, $6::jsonb) "+
			"ON CONFLICT DO NOTHING", thread, s.NS, string(s.ID), parent, noNUL(s.Data), noNUL(metadata))
		for _, w := range s.Writes {
			data := w.Data
			if data == nil {
				data = []byte{}
			}
			// Later writes of control kinds replace earlier ones, as in LangGraph's savers; results
			// of tasks stay.
			conflict := "DO NOTHING"
			if w.Index < 0 {
				conflict = "(thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob"
			}
			batch.Queue("INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob) "+
				"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT "+conflict, thread, s.NS, string(s.ID), w.TaskID, w.Path, w.Index, w.Channel, w.Type, data)
		}
	}
	return p.explain(pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() }))
}

// PutItems implements transfer.Sink.
func (p *Postgres) PutItems(ctx context.Context, items []*store.Item) error {
	batch := &pgx.Batch{}
	for _, i := range items {
		prefix, err := prefixOf(i.Namespace)
		if err != nil {
			return err
		}
		var expires, minutes any
		if !i.ExpiresAt.IsZero() {
			expires = i.ExpiresAt
		}
		if i.TTL > 0 {
			minutes = int(max(1, i.TTL.Round(time.Minute)/time.Minute))
		}
		batch.Queue("INSERT INTO store (prefix, key, value, created_at, updated_at, expires_at, ttl_minutes) VALUES ($1, $2, $3::jsonb, $4, $5, $6, $7) "+
			"ON CONFLICT (prefix, key) DO UPDATE SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at, expires_at = EXCLUDED.expires_at, ttl_minutes = EXCLUDED.ttl_minutes",
			prefix, i.Key, noNUL(i.Value), i.CreatedAt, i.UpdatedAt, expires, minutes)
	}
	return p.explain(pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() }))
}

// Item implements transfer.Sink.
func (p *Postgres) Item(ctx context.Context, namespace []string, key string) (*store.Item, error) {
	prefix, err := prefixOf(namespace)
	if err != nil {
		return nil, err
	}
	rows, err := p.conn.Query(ctx, "SELECT prefix, key, value::text, created_at, updated_at, expires_at, ttl_minutes::float8 FROM store WHERE prefix = $1 AND key = $2", prefix, key)
	if err != nil {
		return nil, p.explain(err)
	}
	i, err := pgx.CollectExactlyOneRow(rows, scanItem)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return i, p.explain(err)
}

// prefixOf returns a namespace as LangGraph's stores keep it: labels joined by dots, which
// therefore cannot contain dots.
func prefixOf(namespace []string) (string, error) {
	for _, label := range namespace {
		if strings.Contains(label, ".") {
			return "", fmt.Errorf("the label %q of its namespace has a dot, which LangGraph's stores do not allow", label)
		}
	}
	return strings.Join(namespace, "."), nil
}
