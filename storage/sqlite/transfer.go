package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/scan"
	"understudy/storage/internal/measure"
	"understudy/storage/internal/relational"
	"understudy/thread"
	"understudy/transfer"
)

// Transfer is the store as package transfer wants it.
func (s *Store) Transfer() transfer.Target { return target{threads{s}} }

type target struct{ threads }

var _ transfer.Target = target{}

// Links is transfer.Target.Links.
func (s *Store) Links(ctx context.Context, t id.Thread) (links []transfer.Link, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_ns, checkpoint_id",
			func(st *sqlite.Stmt) error {
				links = append(links, transfer.Link{NS: st.ColumnText(0), ID: id.Checkpoint(st.ColumnText(1)), Parent: id.Checkpoint(st.ColumnText(2))})
				return nil
			}, t)
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoints of thread %s: %w", t, err)
	}
	return links, nil
}

// ThreadsAfter is transfer.Target.ThreadsAfter.
func (s *Store) ThreadsAfter(ctx context.Context, after id.Thread, limit int) (list []*thread.Thread, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, "SELECT "+threadColumns+" FROM threads WHERE thread_id > ? ORDER BY thread_id LIMIT ?", func(st *sqlite.Stmt) error {
			list = append(list, scanThread(st))
			return nil
		}, after, limit)
	})
	return list, err
}

// Checkpoints is transfer.Target.Checkpoints.
func (s *Store) Checkpoints(ctx context.Context, t id.Thread, named []transfer.Link) (out []*checkpointer.Tuple, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		shared := newLoader(c, t)
		for _, l := range named {
			row, err := loadRow(c, checkpointer.Key{Thread: t, NS: l.NS, ID: l.ID})
			if err == nil && row != nil {
				err = shared.fill(row)
				out = append(out, row)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoints of thread %s: %w", t, err)
	}
	return out, nil
}

// Log is transfer.Target.Log.
func (s *Store) Log(ctx context.Context, t id.Thread) (*transfer.Log, error) {
	l := &transfer.Log{}
	var err error
	if l.Events, err = s.Events(ctx, t, 0, 0); err != nil {
		return nil, err
	}
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		if err := query(c, "SELECT "+rowColumns+" FROM transcripts WHERE thread_id = ?", func(st *sqlite.Stmt) error {
			l.Rows = append(l.Rows, scanRow(st, t))
			return nil
		}, t); err != nil {
			return err
		}
		return query(c, "SELECT node, base, stamp, whole, since, data FROM transcript_nodes WHERE thread_id = ? ORDER BY node", func(st *sqlite.Stmt) error {
			l.Nodes = append(l.Nodes, &eventstore.Node{
				ID: st.ColumnInt64(0), Base: st.ColumnInt64(1), Stamp: st.ColumnInt64(2), Whole: st.ColumnInt(3), Since: st.ColumnInt(4), Data: columnBytes(st, 5),
			})
			return nil
		}, t)
	})
	if err != nil {
		return nil, fmt.Errorf("log of thread %s: %w", t, err)
	}
	return l, nil
}

// PutLog is transfer.Target.PutLog.
func (s *Store) PutLog(ctx context.Context, t id.Thread, l *transfer.Log) error {
	return s.write(ctx, func(tx *Tx) error {
		has, err := tx.one("SELECT 1 FROM events WHERE thread_id = ? LIMIT 1", nil, t)
		if err != nil || has {
			return err
		}
		if has, err = tx.one("SELECT 1 FROM transcripts WHERE thread_id = ? LIMIT 1", nil, t); err != nil || has {
			return err
		}
		tx.LogChanged(t)
		for _, e := range l.Events {
			if err := tx.exec("INSERT INTO event_bodies (refs, content) VALUES (1, ?)", e.Content); err != nil {
				return fmt.Errorf("event %d: %w", e.Seq, err)
			}
			// The seq is kept: transcripts are made of them.
			if err := tx.exec(`INSERT INTO events (thread_id, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, created_at, first_seq)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
				t, int64(e.Seq), e.Run, e.Type, e.Category, e.MessageID, e.Digest, e.Anonymous, tx.conn.LastInsertRowID(), e.Metadata, e.CreatedAt,
				int64(e.First)); err != nil {
				return fmt.Errorf("event %d: %w", e.Seq, err)
			}
		}
		for _, n := range l.Nodes {
			if err := tx.exec("INSERT INTO transcript_nodes (thread_id, node, base, stamp, whole, since, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
				t, n.ID, n.Base, n.Stamp, n.Whole, n.Since, n.Data); err != nil {
				return fmt.Errorf("transcript node %d: %w", n.ID, err)
			}
		}
		for _, r := range l.Rows {
			own := *r
			own.Thread = t
			if err := tx.PutTranscriptRow(&own); err != nil {
				return fmt.Errorf("transcript of checkpoint %s: %w", r.Checkpoint, err)
			}
		}
		return nil
	})
}

// Folder is the data folder of a server or of a proxy's upstream, opened for reading only. A server may be running on it.
type Folder struct {
	*transfer.Storage
	store *Store
	path  string
}

// ErrNoFolder: there is no database of this program at the path.
var ErrNoFolder = errors.New("no data folder")

// OpenFolder opens the database of a data folder without its lock and without changing anything in it. path may name the folder or the
// file in it. ErrNoFolder when it is something else.
func OpenFolder(ctx context.Context, path string) (*Folder, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, fileName)
	}
	if filepath.Base(path) != fileName {
		return nil, ErrNoFolder
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFolder, err)
	}
	readers, err := openReaders(path, 2)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, classify(err))
	}
	s := &Store{
		readers: readers, now: time.Now, log: slog.New(slog.DiscardHandler), metrics: measure.New(nil),
		scans: scan.New(1, 24*time.Hour), // nothing waits behind an import
	}
	s.Store = relational.NewStore(database{s}, s.now)
	known, at := len(migrations()), 0
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "SELECT max(number) FROM schema_migrations", func(st *sqlite.Stmt) error {
			at = st.ColumnInt(0)
			return nil
		})
		return err
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%s is no database of understudy: %w", path, err)
	case at > known:
		err = fmt.Errorf("%s was written by a newer version of this program (schema %d; this version knows %d): use that version", path, at, known)
	case at < known:
		err = fmt.Errorf("%s was written by an older version of this program (schema %d; this version has %d): start this version on it once, then try again", path, at, known)
	}
	if err != nil {
		return nil, errors.Join(err, readers.close())
	}
	return &Folder{Storage: transfer.NewStorage("the data folder "+filepath.Dir(path), s.Transfer(), s.Assistants()), store: s, path: path}, nil
}

// Close ends reading.
func (f *Folder) Close() error { return f.store.readers.close() }

var _ thread.Store = target{}

// Is reports whether a path is that of the folder.
func (f *Folder) Is(path string) bool {
	a, err1 := os.Stat(filepath.Join(path, fileName))
	b, err2 := os.Stat(f.path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
