package langgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonplus"
	"understudy/store"
	"understudy/transfer"
)

// SQLite is a database of langgraph-checkpoint-sqlite, and of LangGraph's SqliteStore if it has
// one. It is opened either for reading (transfer.Source) or for writing (transfer.Sink).
type SQLite struct {
	conn *sqlite.Conn
	path string
	made bool // the file was not there

	checkpoints, items bool
	taskPath, ttl      bool
	notes              []string
}

var _ transfer.Sink = (*SQLite)(nil)

// lastSQLiteStoreMigration is the newest known one; newer tables are refused.
const lastSQLiteStoreMigration = 4

// OpenSQLite opens a file for reading, in one transaction that sees one state. It writes nothing
// into the file. Call Close after use.
func OpenSQLite(ctx context.Context, path string) (*SQLite, error) {
	if err := sniff(path); err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	uri := url.URL{Scheme: "file", OmitHost: true, Path: absolute, RawQuery: "mode=ro"}
	if info, err := os.Stat(path + "-wal"); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		// Without a log no process is writing, so the file can be read without the files that SQLite
		// would create next to it.
		uri.RawQuery = "mode=ro&immutable=1"
	}
	conn, err := sqlite.OpenConn(uri.String(), sqlite.OpenReadOnly|sqlite.OpenURI)
	if err != nil {
		return nil, explainSQLite(path, err)
	}
	s := &SQLite{conn: conn, path: path}
	conn.SetInterrupt(ctx.Done())
	if err := s.begin(); err != nil {
		return nil, errors.Join(explainSQLite(path, err), conn.Close())
	}
	return s, nil
}

// OpenSQLiteSink opens a file for writing, and creates it if missing. Call Close after use.
func OpenSQLiteSink(ctx context.Context, path string) (*SQLite, error) {
	_, missing := os.Stat(path)
	if missing == nil {
		if err := sniff(path); err != nil {
			return nil, err
		}
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenWAL)
	if err != nil {
		return nil, explainSQLite(path, err)
	}
	s := &SQLite{conn: conn, path: path, made: errors.Is(missing, os.ErrNotExist)}
	conn.SetInterrupt(ctx.Done())
	if ours, err := s.columns("schema_migrations"); err != nil || len(ours) > 0 {
		if err == nil {
			err = errOurs
		}
		return nil, errors.Join(explainSQLite(path, err), conn.Close())
	}
	return s, nil
}

// sniff returns an error that says what the file is, if it is no SQLite database.
func sniff(path string) error {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s does not exist: name the file that SqliteSaver was given, or the data folder of understudy", path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("no permission to read %s: run this as a user with access", path)
	case err != nil:
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder without a database of understudy in it: name the file that SqliteSaver was given", path)
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(f, head); err != nil || !bytes.HasPrefix(head, []byte("SQLite format 3\x00")) {
		return fmt.Errorf("%s is not an SQLite database: name the file that SqliteSaver was given", path)
	}
	return nil
}

// errOurs: the file is a database of this program.
var errOurs = errors.New("it is a database of understudy itself: name its folder")

var errDamaged = errors.New("is damaged or was not copied as a whole; copy it again while no program writes to it, or name a backup")

// explainSQLite adds to an error of SQLite what the user can do about it.
func explainSQLite(path string, err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCantOpen, sqlite.ResultPerm, sqlite.ResultReadOnly, sqlite.ResultAuth:
		return fmt.Errorf("%s cannot be opened: %w; is the folder there, and may this user write in it?", path, err)
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		if errors.Is(err, errDamaged) {
			return err
		}
		return fmt.Errorf("%s %w: %w", path, errDamaged, err)
	case sqlite.ResultFull:
		return fault.Wrap(fault.Unavailable, "the disk of "+path+" is full; free some space and run this again, it continues where it stopped", err)
	case sqlite.ResultBusy, sqlite.ResultLocked:
		return fault.Wrap(fault.Unavailable, path+" is locked by another program; stop it, or try again", err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// query runs a statement and calls row for each row.
func (s *SQLite) query(text string, row func(*sqlite.Stmt) error, args ...any) error {
	if err := sqlitex.Execute(s.conn, text, &sqlitex.ExecOptions{Args: args, ResultFunc: row}); err != nil {
		return explainSQLite(s.path, err)
	}
	return nil
}

// columns returns the columns of a table; none if it does not exist.
func (s *SQLite) columns(table string) (map[string]bool, error) {
	out := map[string]bool{}
	err := s.query("SELECT name FROM pragma_table_info(?)", func(st *sqlite.Stmt) error {
		out[st.ColumnText(0)] = true
		return nil
	}, table)
	return out, err
}

// begin opens the transaction of all reads and examines the tables.
func (s *SQLite) begin() error {
	if err := sqlitex.ExecuteTransient(s.conn, "BEGIN", nil); err != nil {
		return err
	}
	return s.look()
}

// look finds out which tables exist, and of which version.
func (s *SQLite) look() error {
	if ours, err := s.columns("schema_migrations"); err != nil {
		return err
	} else if len(ours) > 0 {
		return errOurs
	}
	checkpoints, err := s.columns("checkpoints")
	if err != nil {
		return err
	}
	writes, err := s.columns("writes")
	if err != nil {
		return err
	}
	items, err := s.columns("store")
	if err != nil {
		return err
	}
	s.checkpoints, s.items = len(checkpoints) > 0 && len(writes) > 0, items["prefix"] && items["key"] && items["value"]
	if !s.checkpoints && !s.items {
		return errors.New("it has no tables of langgraph-checkpoint-sqlite (checkpoints, writes): name the file that SqliteSaver was given")
	}
	if s.checkpoints {
		for table, want := range map[string][]string{
			"checkpoints": {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint", "metadata"},
			"writes":      {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"},
		} {
			has := map[string]map[string]bool{"checkpoints": checkpoints, "writes": writes}[table]
			for _, column := range want {
				if !has[column] {
					return fmt.Errorf("its table %s has no column %s: it is not of langgraph-checkpoint-sqlite, or of a version before 1.0", table, column)
				}
			}
		}
		s.taskPath = writes["task_path"]
	}
	if !s.items {
		return nil
	}
	s.ttl = items["expires_at"] && items["ttl_minutes"]
	if vectors, err := s.columns("store_vectors"); err != nil {
		return err
	} else if len(vectors) > 0 {
		s.notes = append(s.notes, "vectors of store items (store_vectors) are not taken: they are made anew where an index is configured")
	}
	return s.known()
}

// known returns an error for a store of a newer version than this program knows.
func (s *SQLite) known() error {
	if table, err := s.columns("store_migrations"); err != nil || len(table) == 0 {
		return err
	}
	at := -1
	if err := s.query("SELECT coalesce(max(v), -1) FROM store_migrations", func(st *sqlite.Stmt) error { at = st.ColumnInt(0); return nil }); err != nil {
		return err
	}
	if at > lastSQLiteStoreMigration {
		return fmt.Errorf("its store is of a newer version of LangGraph (store_migrations says %d, this program knows %d): use a newer understudy", at, lastSQLiteStoreMigration)
	}
	return nil
}

// Name implements transfer.Source.
func (s *SQLite) Name() string { return s.path }

// Notes implements transfer.Source.
func (s *SQLite) Notes() []string { return s.notes }

// Close ends the transaction and closes the file.
func (s *SQLite) Close() error {
	s.conn.SetInterrupt(nil)
	unused := false
	if s.made { // an export that fails before it writes leaves no file that looks like its result
		tables := 0
		err := s.query("SELECT count(*) FROM sqlite_master", func(st *sqlite.Stmt) error { tables = st.ColumnInt(0); return nil })
		unused = err == nil && tables == 0
	}
	err := s.conn.Close()
	if unused && err == nil {
		err = os.Remove(s.path)
	}
	return err
}

// CountThreads implements transfer.Source.
func (s *SQLite) CountThreads(context.Context) (n int, err error) {
	if s.checkpoints {
		err = s.query("SELECT count(DISTINCT thread_id) FROM checkpoints", func(st *sqlite.Stmt) error { n = st.ColumnInt(0); return nil })
	}
	return n, err
}

// Threads implements transfer.Source.
func (s *SQLite) Threads(context.Context) iter.Seq2[*transfer.Thread, error] {
	return func(yield func(*transfer.Thread, error) bool) {
		for last, first := "", true; s.checkpoints; first = false {
			var page []transfer.Thread
			if err := s.query("SELECT thread_id, count(*) FROM checkpoints WHERE ? OR thread_id > ? GROUP BY thread_id ORDER BY thread_id LIMIT ?",
				func(st *sqlite.Stmt) error {
					page = append(page, transfer.Thread{Key: st.ColumnText(0), Checkpoints: st.ColumnInt(1)})
					return nil
				}, first, last, readPage); err != nil {
				yield(nil, err)
				return
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			if len(page) < readPage {
				return
			}
			last = page[len(page)-1].Key
		}
	}
}

// History implements transfer.Source.
func (s *SQLite) History(_ context.Context, t *transfer.Thread) (transfer.History, error) {
	h := &sqliteHistory{s: s, thread: t.Key}
	return h, s.query("SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_ns, checkpoint_id",
		func(st *sqlite.Stmt) error {
			h.links = append(h.links, transfer.Link{NS: st.ColumnText(0), ID: id.Checkpoint(st.ColumnText(1)), Parent: id.Checkpoint(st.ColumnText(2))})
			return nil
		}, t.Key)
}

// sqliteHistory implements transfer.History for one thread.
type sqliteHistory struct {
	s      *SQLite
	thread string
	links  []transfer.Link
}

func (h *sqliteHistory) Links() []transfer.Link { return h.links }
func (h *sqliteHistory) Close() error           { return nil }

// column returns a copy of a value; nil for NULL.
func column(st *sqlite.Stmt, i int) []byte {
	b := make([]byte, st.ColumnLen(i))
	st.ColumnBytes(i, b)
	return b
}

// Read implements transfer.History. SQLite stores each checkpoint with all its values; a value
// that was passed with an earlier checkpoint is left out.
func (h *sqliteHistory) Read(ctx context.Context, links []transfer.Link, fn func(*transfer.Step) error) error {
	path := "''"
	if h.s.taskPath {
		path = "task_path"
	}
	for _, l := range links {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		step := &transfer.Step{}
		step.Thread, step.NS, step.ID, step.Parent = id.Thread(h.thread), l.NS, l.ID, l.Parent
		var typ string
		var whole, metadata []byte
		if err := h.s.query("SELECT type, checkpoint, metadata FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?", func(st *sqlite.Stmt) error {
			typ, whole, metadata = st.ColumnText(0), column(st, 1), column(st, 2)
			return nil
		}, h.thread, l.NS, string(l.ID)); err != nil {
			return err
		}
		if err := h.s.query("SELECT task_id, idx, channel, type, value, "+path+" FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx",
			func(st *sqlite.Stmt) error {
				step.Writes = append(step.Writes, checkpointer.Write{
					TaskID: st.ColumnText(0), Index: st.ColumnInt(1), Channel: st.ColumnText(2), Type: st.ColumnText(3), Data: column(st, 4), Path: st.ColumnText(5),
				})
				return nil
			}, h.thread, l.NS, string(l.ID)); err != nil {
			return err
		}
		var err error
		if step.Metadata, err = cleanJSON(metadata); err != nil {
			return fmt.Errorf("metadata of checkpoint %s: %w", l.ID, err)
		}
		switch typ {
		case jsonplus.TypeMsgpack:
			err = split(step, whole)
		case jsonplus.TypeJSON, "": // the first versions had no column for the type
			err = splitJSON(step, whole)
		default:
			err = fmt.Errorf("it is stored as %q, which is not read: loading a pickle runs code", typ)
		}
		if err != nil {
			return fmt.Errorf("checkpoint %s: %w", l.ID, err)
		}
		if err := fn(step); err != nil {
			return err
		}
	}
	return nil
}

// Items implements transfer.Source.
func (s *SQLite) Items(context.Context) iter.Seq2[*store.Item, error] {
	return func(yield func(*store.Item, error) bool) {
		expiry, alive := "'', 0.0", "1"
		if s.ttl {
			expiry, alive = "expires_at, ttl_minutes", "(expires_at IS NULL OR expires_at > CURRENT_TIMESTAMP)"
		}
		for prefix, key, first := "", "", true; s.items; first = false {
			var page []*store.Item
			size := 0
			if err := s.query("SELECT prefix, key, value, created_at, updated_at, "+expiry+" FROM store WHERE (? OR (prefix, key) > (?, ?)) AND "+alive+" ORDER BY prefix, key LIMIT ?",
				func(st *sqlite.Stmt) error {
					i := sqliteItem(st)
					page = append(page, i)
					if size += len(i.Value); size > readBytes {
						return errEnough
					}
					return nil
				}, first, prefix, key, readPage); err != nil && !errors.Is(err, errEnough) {
				yield(nil, err)
				return
			}
			for _, i := range page {
				if !yield(i, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			last := page[len(page)-1]
			prefix, key = strings.Join(last.Namespace, "."), last.Key
		}
	}
}

// errEnough ends a query whose rows have more than readBytes.
var errEnough = errors.New("enough")

// sqliteItem reads an item of the store.
func sqliteItem(st *sqlite.Stmt) *store.Item {
	return &store.Item{
		Namespace: strings.Split(st.ColumnText(0), "."), Key: st.ColumnText(1), Value: json.RawMessage(column(st, 2)),
		CreatedAt: sqliteTime(st.ColumnText(3)), UpdatedAt: sqliteTime(st.ColumnText(4)), ExpiresAt: sqliteTime(st.ColumnText(5)),
		TTL: time.Duration(st.ColumnFloat(6) * float64(time.Minute)),
	}
}

// sqliteTime parses a time as SQLite or Python's driver writes it; the zero time if it is none.
func sqliteTime(text string) time.Time {
	for _, layout := range []string{"2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999", time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}
