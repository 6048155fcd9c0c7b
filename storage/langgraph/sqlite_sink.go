package langgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/internal/jsonplus"
	"understudy/store"
	"understudy/transfer"
)

// sqliteTables are created as SqliteSaver and SqliteStore create them.
const sqliteTables = `
CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
	parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE IF NOT EXISTS writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
	task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, value BLOB,
	PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
CREATE TABLE IF NOT EXISTS store_migrations (v INTEGER PRIMARY KEY);`

// sqliteStoreSteps are the migrations of SqliteStore; the index of a step is its number.
var sqliteStoreSteps = []string{
	`CREATE TABLE IF NOT EXISTS store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL,
		created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (prefix, key));`,
	"CREATE INDEX IF NOT EXISTS store_prefix_idx ON store (prefix);",
	"ALTER TABLE store ADD COLUMN expires_at TIMESTAMP;",
	"ALTER TABLE store ADD COLUMN ttl_minutes REAL;",
	"CREATE INDEX IF NOT EXISTS idx_store_expires_at ON store (expires_at) WHERE expires_at IS NOT NULL;",
}

// Prepare implements transfer.Sink.
func (s *SQLite) Prepare(context.Context) (err error) {
	if table, err := s.columns("checkpoints"); err != nil {
		return err
	} else if len(table) > 0 && !table["checkpoint"] {
		return fmt.Errorf("%s has a table checkpoints that is not LangGraph's: export to another file", s.path)
	}
	if err := sqlitex.ExecuteTransient(s.conn, "PRAGMA journal_mode = WAL", nil); err != nil {
		return explainSQLite(s.path, err)
	}
	if err := sqlitex.ExecuteScript(s.conn, sqliteTables, nil); err != nil {
		return explainSQLite(s.path, err)
	}
	if writes, err := s.columns("writes"); err != nil {
		return err
	} else if !writes["task_path"] {
		if err := sqlitex.ExecuteTransient(s.conn, "ALTER TABLE writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''", nil); err != nil {
			return explainSQLite(s.path, err)
		}
	}
	if err := s.known(); err != nil {
		return err
	}
	at := -1
	if err := s.query("SELECT coalesce(max(v), -1) FROM store_migrations", func(st *sqlite.Stmt) error { at = st.ColumnInt(0); return nil }); err != nil {
		return err
	}
	for v := at + 1; v < len(sqliteStoreSteps); v++ {
		if err := sqlitex.ExecuteScript(s.conn, fmt.Sprintf("%s INSERT INTO store_migrations (v) VALUES (%d);", sqliteStoreSteps[v], v), nil); err != nil {
			return explainSQLite(s.path, err)
		}
	}
	return s.look()
}

// transaction runs fn in a transaction.
func (s *SQLite) transaction(fn func() error) (err error) {
	done, err := sqlitex.ImmediateTransaction(s.conn)
	if err != nil {
		return explainSQLite(s.path, err)
	}
	defer func() {
		done(&err)
		if err != nil {
			err = explainSQLite(s.path, err)
		}
	}()
	return fn()
}

// Put implements transfer.Sink.
func (s *SQLite) Put(_ context.Context, thread string, steps []*transfer.Step) error {
	return s.transaction(func() error {
		for _, p := range steps {
			whole, err := join(p)
			if err != nil {
				return err
			}
			metadata := p.Metadata
			if len(metadata) == 0 {
				metadata = json.RawMessage("{}")
			}
			var parent any
			if p.Parent != "" {
				parent = string(p.Parent)
			}
			if err := s.query("INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?) "+
				"ON CONFLICT DO NOTHING", nil, thread, p.NS, string(p.ID), parent, jsonplus.TypeMsgpack, whole, []byte(metadata)); err != nil {
				return err
			}
			for _, w := range p.Writes {
				data := w.Data
				if data == nil {
					data = []byte{}
				}
				verb := "INSERT OR IGNORE"
				if w.Index < 0 {
					verb = "INSERT OR REPLACE"
				}
				if err := s.query(verb+" INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", nil,
					thread, p.NS, string(p.ID), w.TaskID, w.Path, w.Index, w.Channel, w.Type, data); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// PutItems implements transfer.Sink.
func (s *SQLite) PutItems(_ context.Context, items []*store.Item) error {
	const layout = "2006-01-02 15:04:05.999999-07:00" // as Python's driver writes a datetime
	return s.transaction(func() error {
		for _, i := range items {
			prefix, err := prefixOf(i.Namespace)
			if err != nil {
				return err
			}
			var expires, minutes any
			if !i.ExpiresAt.IsZero() {
				expires = i.ExpiresAt.UTC().Format(layout)
			}
			if i.TTL > 0 {
				minutes = i.TTL.Minutes()
			}
			if err := s.query("INSERT OR REPLACE INTO store (prefix, key, value, created_at, updated_at, expires_at, ttl_minutes) VALUES (?, ?, ?, ?, ?, ?, ?)", nil,
				prefix, i.Key, string(i.Value), i.CreatedAt.UTC().Format(time.DateTime), i.UpdatedAt.UTC().Format(time.DateTime), expires, minutes); err != nil {
				return err
			}
		}
		return nil
	})
}

// Item implements transfer.Sink.
func (s *SQLite) Item(_ context.Context, namespace []string, key string) (i *store.Item, err error) {
	prefix, err := prefixOf(namespace)
	if err != nil {
		return nil, err
	}
	err = s.query("SELECT prefix, key, value, created_at, updated_at, expires_at, ttl_minutes FROM store WHERE prefix = ? AND key = ?", func(st *sqlite.Stmt) error {
		i = sqliteItem(st)
		return nil
	}, prefix, key)
	return i, err
}
