package sqlite

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
)

var errNoAssistant = fault.New(fault.NotFound, "assistant not found")

const (
	assistantColumns = "assistant_id, graph_id, name, description, config, context, metadata, version, created_at, updated_at"
	selectAssistant  = "SELECT " + assistantColumns + " FROM assistants WHERE assistant_id = ?"
)

func scanAssistant(s *sqlite.Stmt) *assistant.Assistant {
	a := &assistant.Assistant{
		ID:        id.Assistant(s.ColumnText(0)),
		GraphID:   s.ColumnText(1),
		Name:      s.ColumnText(2),
		Config:    columnBytes(s, 4),
		Context:   columnBytes(s, 5),
		Metadata:  columnBytes(s, 6),
		Version:   s.ColumnInt(7),
		CreatedAt: columnTime(s, 8),
		UpdatedAt: columnTime(s, 9),
	}
	if !s.ColumnIsNull(3) {
		text := s.ColumnText(3)
		a.Description = &text
	}
	return a
}

func assistantArgs(a *assistant.Assistant) []any {
	var description any
	if a.Description != nil {
		description = *a.Description
	}
	return []any{a.ID, a.GraphID, a.Name, description, a.Config, a.Context, a.Metadata, a.Version, a.CreatedAt, a.UpdatedAt}
}

// loadAssistant gives the row of a statement; fault.NotFound when it has none.
func loadAssistant(conn *sqlite.Conn, text string, args ...any) (a *assistant.Assistant, err error) {
	found, err := one(conn, text, func(s *sqlite.Stmt) error {
		a = scanAssistant(s)
		return nil
	}, args...)
	if err == nil && !found {
		err = errNoAssistant
	}
	return a, err
}

// Assistant is assistant.Store.Assistant and run.Store.Assistant.
func (s *Store) Assistant(ctx context.Context, a id.Assistant) (out *assistant.Assistant, err error) {
	known, since := s.writer.assistants.get(a)
	if known != nil {
		return known, nil
	}
	err = s.read(ctx, func(c *sqlite.Conn) error {
		out, err = loadAssistant(c, selectAssistant, a)
		return err
	})
	if err == nil {
		s.writer.assistants.put(out, since)
	}
	return out, err
}

// knownAssistants are rows as they were read last: each run asks for one. Only the writer changes them, and no other process may.
type knownAssistants struct {
	mu      sync.Mutex
	rows    map[id.Assistant]assistant.Assistant
	changes int // commits that changed assistants
}

// mostKnown bounds them; beyond it others take their places.
const mostKnown = 256

// get gives a copy of a row, nil when it is not known, and since when what is read is not older than it may be.
func (k *knownAssistants) get(a id.Assistant) (row *assistant.Assistant, since int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.rows[a]; ok {
		return &known, k.changes
	}
	return nil, k.changes
}

// put notes a row that was read after since, unless assistants have changed meanwhile.
func (k *knownAssistants) put(row *assistant.Assistant, since int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if since != k.changes {
		return
	}
	if k.rows == nil || len(k.rows) >= mostKnown {
		k.rows = map[id.Assistant]assistant.Assistant{}
	}
	k.rows[row.ID] = *row
}

// forget drops all. It is called after a commit that changed assistants, before the one who asked for it is told.
func (k *knownAssistants) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows, k.changes = nil, k.changes+1
}

// assistantOrders are the statements by the column they sort by, ascending and descending. Each follows an index,
// so that a page is read without the rows behind it.
var assistantOrders = rows.Orders("SELECT "+assistantColumns+" FROM assistants",
	"assistant_id", "assistant_id", "created_at", "updated_at", "name", "graph_id")

// listAssistants is assistant.Store.Assistants (the name is taken by the adapter). Assistants are few: the filters are applied to rows in order until the page is full.
func (s *Store) listAssistants(ctx context.Context, q assistant.Query) (out []*assistant.Assistant, err error) {
	text, err := rows.Ordered(assistantOrders, q.SortBy, "created_at", q.Ascending)
	if err != nil {
		return nil, err
	}
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	err = s.eachAssistant(ctx, q, text, func(st *sqlite.Stmt) error {
		in, last := p.Take()
		if in {
			out = append(out, scanAssistant(st))
		}
		if last {
			return errStop
		}
		return nil
	})
	return out, err
}

// CountAssistants is assistant.Store.CountAssistants.
func (s *Store) CountAssistants(ctx context.Context, q assistant.Query) (n int, err error) {
	err = s.eachAssistant(ctx, q, "SELECT "+assistantColumns+" FROM assistants", func(*sqlite.Stmt) error {
		n++
		return nil
	})
	return n, err
}

func (s *Store) eachAssistant(ctx context.Context, q assistant.Query, text string, row func(*sqlite.Stmt) error) error {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	name := strings.ToLower(q.Name)
	return s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, text, func(st *sqlite.Stmt) error {
			if q.GraphID != "" && st.ColumnText(1) != q.GraphID ||
				name != "" && !strings.Contains(strings.ToLower(st.ColumnText(2)), name) ||
				!match.Everything() && !match.Match(columnBytes(st, 6)) {
				return nil
			}
			return row(st)
		})
	})
}

// Versions is assistant.Store.Versions.
func (s *Store) Versions(ctx context.Context, a id.Assistant, metadata []byte, limit, offset int) (out []*assistant.Assistant, err error) {
	match, err := contain.Parse(metadata)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	p := rows.Page{Limit: limit, Offset: offset}
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, "SELECT "+assistantColumns+" FROM assistant_versions WHERE assistant_id = ? ORDER BY version DESC",
			func(st *sqlite.Stmt) error {
				if !match.Everything() && !match.Match(columnBytes(st, 6)) {
					return nil
				}
				in, last := p.Take()
				if in {
					out = append(out, scanAssistant(st))
				}
				if last {
					return errStop
				}
				return nil
			}, a)
	})
	return out, err
}

// Assistant is assistant.Tx.Assistant and run.Tx.Assistant.
func (tx *Tx) Assistant(a id.Assistant) (*assistant.Assistant, error) {
	return loadAssistant(tx.conn, selectAssistant, a)
}

// InsertAssistant is assistant.Tx.InsertAssistant.
func (tx *Tx) InsertAssistant(a *assistant.Assistant) error {
	tx.assistants = true
	if found, err := tx.one("SELECT 1 FROM assistants WHERE assistant_id = ?", nil, a.ID); err != nil {
		return fmt.Errorf("insert assistant %s: %w", a.ID, err)
	} else if found {
		return fault.New(fault.Conflict, "assistant already exists")
	}
	if err := tx.exec("INSERT INTO assistants ("+assistantColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", assistantArgs(a)...); err != nil {
		return fmt.Errorf("insert assistant %s: %w", a.ID, err)
	}
	return tx.insertVersion(a)
}

// PutAssistant is assistant.Tx.PutAssistant.
func (tx *Tx) PutAssistant(a *assistant.Assistant, newVersion bool) error {
	tx.assistants = true
	err := tx.exec(`UPDATE assistants SET (`+assistantColumns+`) = (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) WHERE assistant_id = ?1`,
		assistantArgs(a)...)
	if err != nil {
		return fmt.Errorf("update assistant %s: %w", a.ID, err)
	}
	if tx.conn.Changes() == 0 {
		return errNoAssistant
	}
	if !newVersion {
		return nil
	}
	return tx.insertVersion(a)
}

func (tx *Tx) insertVersion(a *assistant.Assistant) error {
	err := tx.exec("INSERT INTO assistant_versions ("+assistantColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", assistantArgs(a)...)
	if err != nil {
		return fmt.Errorf("insert version %d of assistant %s: %w", a.Version, a.ID, err)
	}
	return nil
}

// Version is assistant.Tx.Version.
func (tx *Tx) Version(a id.Assistant, version int) (*assistant.Assistant, error) {
	return loadAssistant(tx.conn, "SELECT "+assistantColumns+" FROM assistant_versions WHERE assistant_id = ? AND version = ?", a, version)
}

// LastVersion is assistant.Tx.LastVersion.
func (tx *Tx) LastVersion(a id.Assistant) (n int, err error) {
	found, err := tx.one("SELECT version FROM assistant_versions WHERE assistant_id = ? ORDER BY version DESC LIMIT 1",
		func(s *sqlite.Stmt) error {
			n = s.ColumnInt(0)
			return nil
		}, a)
	if err == nil && !found {
		err = errNoAssistant
	}
	return n, err
}

// DeleteAssistant is assistant.Tx.DeleteAssistant.
func (tx *Tx) DeleteAssistant(a id.Assistant) error {
	tx.assistants = true
	if err := tx.exec("DELETE FROM assistants WHERE assistant_id = ?", a); err != nil {
		return fmt.Errorf("delete assistant %s: %w", a, err)
	}
	if tx.conn.Changes() == 0 {
		return errNoAssistant
	}
	return tx.exec("DELETE FROM assistant_versions WHERE assistant_id = ?", a)
}

// ThreadsOf is assistant.Tx.ThreadsOf.
func (tx *Tx) ThreadsOf(a id.Assistant) (out []id.Thread, err error) {
	err = tx.query("SELECT thread_id FROM thread_metadata WHERE key = 'assistant_id' AND value = ? ORDER BY updated_at, thread_id",
		func(s *sqlite.Stmt) error {
			out = append(out, id.Thread(s.ColumnText(0)))
			return nil
		}, `"`+string(a))
	return out, err
}
