package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
)

var errNoAssistant = fault.New(fault.NotFound, "assistant not found")

const (
	assistantColumns = "assistant_id, graph_id, name, description, config, context, metadata, version, created_at, updated_at"
	selectAssistant  = "SELECT " + assistantColumns + " FROM assistants WHERE assistant_id = $1"

	colStamp = 10 // of stampedAssistant
)

func scanAssistant(r *row) *assistant.Assistant {
	a := &assistant.Assistant{
		ID:        id.Assistant(r.Text(0)),
		GraphID:   r.Text(1),
		Name:      r.Text(2),
		Config:    r.Bytes(4),
		Context:   r.Bytes(5),
		Metadata:  r.Bytes(6),
		Version:   int(r.Int(7)),
		CreatedAt: r.Time(8),
		UpdatedAt: r.Time(9),
	}
	if !r.Null(3) {
		text := r.Text(3)
		a.Description = &text
	}
	return a
}

func assistantArgs(a *assistant.Assistant) []any {
	return []any{a.ID, a.GraphID, a.Name, a.Description, a.Config, a.Context, a.Metadata, a.Version, a.CreatedAt, a.UpdatedAt}
}

// loadAssistant gives the row of a statement; fault.NotFound when it has none.
func loadAssistant(q querier, text string, args ...any) (a *assistant.Assistant, err error) {
	found, err := one(q, text, func(r *row) error {
		a = scanAssistant(r)
		return nil
	}, args...)
	if err == nil && !found {
		err = errNoAssistant
	}
	return a, err
}

// Assistant is assistant.Store.Assistant and run.Store.Assistant.
func (s *Store) Assistant(ctx context.Context, a id.Assistant) (out *assistant.Assistant, err error) {
	err = s.read(ctx, func(c *reader) error {
		out, err = loadAssistant(c, selectAssistant, a)
		return err
	})
	return out, err
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
	err = s.eachAssistant(ctx, q, text, func(r *row) error {
		in, last := p.Take()
		if in {
			out = append(out, scanAssistant(r))
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
	err = s.eachAssistant(ctx, q, "SELECT "+assistantColumns+" FROM assistants", func(*row) error {
		n++
		return nil
	})
	return n, err
}

func (s *Store) eachAssistant(ctx context.Context, q assistant.Query, text string, fn func(*row) error) error {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	name := strings.ToLower(q.Name)
	return s.read(ctx, func(c *reader) error {
		return c.query(text, func(r *row) error {
			if q.GraphID != "" && r.Text(1) != q.GraphID ||
				name != "" && !strings.Contains(strings.ToLower(r.Text(2)), name) ||
				!match.Everything() && !match.Match(r.Bytes(6)) {
				return nil
			}
			return fn(r)
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
	err = s.read(ctx, func(c *reader) error {
		return c.query("SELECT "+assistantColumns+" FROM assistant_versions WHERE assistant_id = $1 ORDER BY version DESC",
			func(r *row) error {
				if !match.Everything() && !match.Match(r.Bytes(6)) {
					return nil
				}
				in, last := p.Take()
				if in {
					out = append(out, scanAssistant(r))
				}
				if last {
					return errStop
				}
				return nil
			}, a)
	})
	return out, err
}

// Assistant is assistant.Tx.Assistant and run.Tx.Assistant. Who changes assistants locks them; runs only look.
func (tx *Tx) Assistant(a id.Assistant) (*assistant.Assistant, error) {
	if tx.exclusive {
		return loadAssistant(tx, selectAssistant+" FOR UPDATE", a)
	}
	return tx.guarded(a)
}

// What runs are made of changes seldom, so it is kept in memory. A transaction that uses it has the database check, with its last statements,
// that the row is still the same: else it is run again with what is there.

// stampedAssistant is selectAssistant with what tells versions of the row apart.
const stampedAssistant = "SELECT " + assistantColumns + ", xmin::text FROM assistants WHERE assistant_id = $1"

// sameAssistant fails with a division by zero when the row is another.
const sameAssistant = "SELECT 1 / count(*) FROM assistants WHERE assistant_id = $1 AND xmin = $2::text::xid"

// stamped is an assistant and the version of its row.
type stamped struct {
	assistant assistant.Assistant
	stamp     string
}

// knownAssistants bounds those in memory.
const knownAssistants = 1000

// guarded gives an assistant, which is the same when the transaction commits.
func (tx *Tx) guarded(a id.Assistant) (*assistant.Assistant, error) {
	s := tx.store
	s.mu.Lock()
	known := s.known[a]
	s.mu.Unlock()
	if known == nil {
		known = &stamped{}
		found, err := one(tx, stampedAssistant, func(r *row) error {
			known.assistant, known.stamp = *scanAssistant(r), r.Text(colStamp)
			return nil
		}, a)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, errNoAssistant
		}
		s.mu.Lock()
		if len(s.known) >= knownAssistants {
			clear(s.known)
		}
		if s.known == nil {
			s.known = map[id.Assistant]*stamped{}
		}
		s.known[a] = known
		s.mu.Unlock()
	} else if tx.known[a] != known {
		tx.batch.Queue(sameAssistant, clean(string(a)), known.stamp)
		if tx.known == nil {
			tx.known = map[id.Assistant]*stamped{}
		}
		tx.known[a] = known
	}
	out := known.assistant
	return &out, nil
}

// outdated reports whether a transaction failed because an assistant is not as it was known, and forgets those that are.
func (s *Store) outdated(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "22012" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
	return true
}

var (
	insertAssistant = insertInto("assistants", assistantColumns) + " ON CONFLICT DO NOTHING"
	insertVersion   = insertInto("assistant_versions", assistantColumns)
)

// InsertAssistant is assistant.Tx.InsertAssistant.
func (tx *Tx) InsertAssistant(a *assistant.Assistant) error {
	n, err := tx.affected(insertAssistant, assistantArgs(a)...)
	if err != nil {
		return fmt.Errorf("insert assistant %s: %w", a.ID, err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "assistant already exists")
	}
	return tx.insertVersion(a)
}

// PutAssistant is assistant.Tx.PutAssistant.
func (tx *Tx) PutAssistant(a *assistant.Assistant, newVersion bool) error {
	n, err := tx.affected("UPDATE assistants SET ("+assistantColumns+") = ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) WHERE assistant_id = $1", assistantArgs(a)...)
	if err != nil {
		return fmt.Errorf("update assistant %s: %w", a.ID, err)
	}
	if n == 0 {
		return errNoAssistant
	}
	if !newVersion {
		return nil
	}
	return tx.insertVersion(a)
}

func (tx *Tx) insertVersion(a *assistant.Assistant) error {
	if err := tx.exec(insertVersion, assistantArgs(a)...); err != nil {
		return fmt.Errorf("insert version %d of assistant %s: %w", a.Version, a.ID, err)
	}
	return nil
}

// Version is assistant.Tx.Version.
func (tx *Tx) Version(a id.Assistant, version int) (*assistant.Assistant, error) {
	return loadAssistant(tx, "SELECT "+assistantColumns+" FROM assistant_versions WHERE assistant_id = $1 AND version = $2", a, version)
}

// LastVersion is assistant.Tx.LastVersion.
func (tx *Tx) LastVersion(a id.Assistant) (n int, err error) {
	found, err := one(tx, "SELECT version FROM assistant_versions WHERE assistant_id = $1 ORDER BY version DESC LIMIT 1", func(r *row) error {
		n = int(r.Int(0))
		return nil
	}, a)
	if err == nil && !found {
		err = errNoAssistant
	}
	return n, err
}

// DeleteAssistant is assistant.Tx.DeleteAssistant.
func (tx *Tx) DeleteAssistant(a id.Assistant) error {
	n, err := tx.affected("DELETE FROM assistants WHERE assistant_id = $1", a)
	if err != nil {
		return fmt.Errorf("delete assistant %s: %w", a, err)
	}
	if n == 0 {
		return errNoAssistant
	}
	return tx.exec("DELETE FROM assistant_versions WHERE assistant_id = $1", a)
}

// ThreadsOf is assistant.Tx.ThreadsOf.
func (tx *Tx) ThreadsOf(a id.Assistant) (out []id.Thread, err error) {
	err = tx.query("SELECT thread_id FROM thread_metadata WHERE key = 'assistant_id' AND value = $1 ORDER BY updated_at, thread_id",
		func(r *row) error {
			out = append(out, id.Thread(r.Text(0)))
			return nil
		}, `"`+string(a))
	return out, err
}
