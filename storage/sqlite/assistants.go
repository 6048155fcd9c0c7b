package sqlite

import (
	"context"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
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
	err = s.read(ctx, func(c *sqlite.Conn) error {
		out, err = loadAssistant(c, selectAssistant, a)
		return err
	})
	return out, err
}

// assistantOrders are the statements by the column they sort by, ascending and descending. Each follows an index,
// so that a page is read without the rows behind it.
var assistantOrders = orders("SELECT "+assistantColumns+" FROM assistants",
	"assistant_id", "assistant_id", "created_at", "updated_at", "name", "graph_id")

// orders gives, by column, a query that is sorted by it and then by the id, both in the same direction.
func orders(selection, id string, columns ...string) map[string][2]string {
	out := map[string][2]string{}
	for _, c := range columns {
		by := [2]string{c + ", " + id, c + " DESC, " + id + " DESC"}
		if c == id {
			by = [2]string{id, id + " DESC"}
		}
		out[c] = [2]string{selection + " ORDER BY " + by[0], selection + " ORDER BY " + by[1]}
	}
	return out
}

// ordered picks the query of a sort column.
func ordered(by map[string][2]string, column, fallback string, ascending bool) (string, error) {
	if column == "" {
		column = fallback
	}
	texts, ok := by[column]
	if !ok {
		return "", fault.Newf(fault.Invalid, "cannot sort by %q", column)
	}
	if ascending {
		return texts[0], nil
	}
	return texts[1], nil
}

// page skips and counts rows that were found. Its zero value wants all.
type page struct {
	limit, offset int // limit <= 0: all
	seen          int
}

// take reports whether the next row belongs to the page, and whether it is the last one wanted.
func (p *page) take() (in, last bool) {
	p.seen++
	return p.seen > p.offset, p.limit > 0 && p.seen >= p.offset+p.limit
}

// listAssistants is assistant.Store.Assistants (the name is taken by the adapter). Assistants are few: the filters are applied to rows in order until the page is full.
func (s *Store) listAssistants(ctx context.Context, q assistant.Query) (out []*assistant.Assistant, err error) {
	text, err := ordered(assistantOrders, q.SortBy, "created_at", q.Ascending)
	if err != nil {
		return nil, err
	}
	p := page{limit: q.Limit, offset: q.Offset}
	err = s.eachAssistant(ctx, q, text, func(st *sqlite.Stmt) error {
		in, last := p.take()
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
	p := page{limit: limit, offset: offset}
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, "SELECT "+assistantColumns+" FROM assistant_versions WHERE assistant_id = ? ORDER BY version DESC",
			func(st *sqlite.Stmt) error {
				if !match.Everything() && !match.Match(columnBytes(st, 6)) {
					return nil
				}
				in, last := p.take()
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
