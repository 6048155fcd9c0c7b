package relational

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"understudy/access"
	"understudy/assistant"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
)

// ErrNoAssistant: there is no such assistant, or version of it.
var ErrNoAssistant = fault.New(fault.NotFound, "assistant not found")

// AssistantColumns are the columns of both tables, assistants and assistant_versions.
const AssistantColumns = "assistant_id, graph_id, name, description, config, context, metadata, version, created_at, updated_at"

// ScanAssistant reads a row of AssistantColumns.
func ScanAssistant(r Row) *assistant.Assistant {
	return &assistant.Assistant{
		ID:          id.Assistant(r.Text(0)),
		GraphID:     r.Text(1),
		Name:        r.Text(2),
		Description: pointer(r, 3, r.Text),
		Config:      r.Bytes(4),
		Context:     r.Bytes(5),
		Metadata:    r.Bytes(6),
		Version:     int(r.Int(7)),
		CreatedAt:   r.Time(8),
		UpdatedAt:   r.Time(9),
	}
}

// assistantArgs returns the values of AssistantColumns.
func assistantArgs(a *assistant.Assistant) []any {
	return []any{a.ID, a.GraphID, a.Name, a.Description, a.Config, a.Context, a.Metadata, a.Version, a.CreatedAt, a.UpdatedAt}
}

var (
	selectAssistant = same("SELECT " + AssistantColumns + " FROM assistants WHERE assistant_id = $1")
	// holdAssistant locks the row until the end of the transaction.
	holdAssistant    = selectAssistant.Then(differing(" FOR UPDATE", ""))
	selectAssistants = same("SELECT " + AssistantColumns + " FROM assistants")
	insertAssistant  = same(insertInto("assistants", AssistantColumns) + " ON CONFLICT DO NOTHING")
	updateAssistant  = same("UPDATE assistants SET (" + AssistantColumns + ") = (" + marks(1, AssistantColumns) + ") WHERE assistant_id = $1")
	deleteAssistant  = same("DELETE FROM assistants WHERE assistant_id = $1")

	selectVersion  = same("SELECT " + AssistantColumns + " FROM assistant_versions WHERE assistant_id = $1 AND version = $2")
	selectVersions = same("SELECT " + AssistantColumns + " FROM assistant_versions WHERE assistant_id = $1 ORDER BY version DESC")
	lastVersion    = same("SELECT version FROM assistant_versions WHERE assistant_id = $1 ORDER BY version DESC LIMIT 1")
	insertVersion  = same(insertInto("assistant_versions", AssistantColumns))
	deleteVersions = same("DELETE FROM assistant_versions WHERE assistant_id = $1")

	// In Postgres the index has the beginning of names, because it takes no long texts.
	assistantsInOrder = inOrder(selectAssistants, "assistant_id", "assistant_id", "created_at", "updated_at", "graph_id").with("name", selectAssistants,
		differing("left(name, 256), name, assistant_id", "name, assistant_id"),
		differing("left(name, 256) DESC, name DESC, assistant_id DESC", "name DESC, assistant_id DESC"))

	threadsOfAssistant = same("SELECT thread_id FROM thread_metadata WHERE key = 'assistant_id' AND value = $1 ORDER BY updated_at, thread_id")
)

// Assistant implements assistant.Store and run.Store.
func (s assistantStore) Assistant(ctx context.Context, a id.Assistant) (*assistant.Assistant, error) {
	return AssistantIn(access.Reach(ctx, access.Assistants))(from(ctx, s.db.Read, func(q Querier) (*assistant.Assistant, error) {
		return the(q, ErrNoAssistant, selectAssistant, ScanAssistant, a)
	}))
}

// ListAssistants implements the search of assistant.Store. Assistants are few, so filters are
// applied to rows in order until the page is full.
func (s assistantStore) ListAssistants(ctx context.Context, of assistant.Query) ([]*assistant.Assistant, error) {
	text, err := assistantsInOrder.pick(of.SortBy, "created_at", of.Ascending)
	if err != nil {
		return nil, err
	}
	return s.pageOfAssistants(ctx, of, text)
}

// Versions implements assistant.Store.
func (s assistantStore) Versions(ctx context.Context, a id.Assistant, metadata []byte, limit, offset int) ([]*assistant.Assistant, error) {
	if access.Reach(ctx, access.Assistants) != nil { // the current version decides for all
		if _, err := s.Assistant(ctx, a); err != nil {
			return nil, err
		}
		ctx = access.Everything(ctx)
	}
	return s.pageOfAssistants(ctx, assistant.Query{Metadata: metadata, Limit: limit, Offset: offset}, selectVersions, a)
}

// pageOfAssistants returns a page of the assistants that a statement selects.
func (s assistantStore) pageOfAssistants(ctx context.Context, of assistant.Query, text Statement, args ...any) (out []*assistant.Assistant, err error) {
	p := rows.Page{Limit: of.Limit, Offset: of.Offset}
	err = s.eachAssistant(ctx, of, text, func(r Row) error { return take(&p, func() { out = append(out, ScanAssistant(r)) }) }, args...)
	return out, err
}

// CountAssistants implements assistant.Store.
func (s assistantStore) CountAssistants(ctx context.Context, of assistant.Query) (n int, err error) {
	err = s.eachAssistant(ctx, of, selectAssistants, func(Row) error {
		n++
		return nil
	})
	return n, err
}

// eachAssistant calls fn for rows that match the query's metadata and name.
func (s assistantStore) eachAssistant(ctx context.Context, of assistant.Query, text Statement, fn func(Row) error, args ...any) error {
	match, err := contain.Parse(of.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	name, reach := strings.ToLower(of.Name), access.Reach(ctx, access.Assistants)
	return s.db.Read(ctx, func(q Querier) error {
		return q.Query(text, func(r Row) error {
			if of.GraphID != "" && r.Text(1) != of.GraphID ||
				name != "" && !strings.Contains(strings.ToLower(r.Text(2)), name) ||
				!match.Everything() && !match.Match(r.Bytes(6)) ||
				reach != nil && !reach.Match(r.Bytes(6)) {
				return nil
			}
			return fn(r)
		}, args...)
	})
}

// Assistant implements assistant.Tx and run.Tx.
func (tx *Tx) Assistant(a id.Assistant) (*assistant.Assistant, error) {
	return AssistantIn(tx.Reach.Assistants)(the(tx, ErrNoAssistant, holdAssistant, ScanAssistant, a))
}

// AssistantIn returns a function that returns an assistant that was found, if it is in reach.
func AssistantIn(reach *access.Filter) func(*assistant.Assistant, error) (*assistant.Assistant, error) {
	return func(a *assistant.Assistant, err error) (*assistant.Assistant, error) {
		if err == nil && !reach.Match(a.Metadata) {
			return nil, ErrNoAssistant
		}
		return a, err
	}
}

// InsertAssistant implements assistant.Tx.
func (tx *Tx) InsertAssistant(a *assistant.Assistant) error {
	taken := fault.New(fault.Conflict, "assistant already exists")
	if err := tx.change(taken, fmt.Sprintf("insert assistant %s", a.ID), insertAssistant, assistantArgs(a)...); err != nil {
		return err
	}
	return tx.insertVersion(a)
}

// PutAssistant implements assistant.Tx.
func (tx *Tx) PutAssistant(a *assistant.Assistant, newVersion bool) error {
	err := tx.change(ErrNoAssistant, fmt.Sprintf("update assistant %s", a.ID), updateAssistant, assistantArgs(a)...)
	if err != nil || !newVersion {
		return err
	}
	return tx.insertVersion(a)
}

// insertVersion stores the current row as a version.
func (tx *Tx) insertVersion(a *assistant.Assistant) error {
	if err := tx.Exec(insertVersion, assistantArgs(a)...); err != nil {
		return fmt.Errorf("insert version %d of assistant %s: %w", a.Version, a.ID, err)
	}
	return nil
}

// Version implements assistant.Tx.
func (tx *Tx) Version(a id.Assistant, version int) (*assistant.Assistant, error) {
	return the(tx, ErrNoAssistant, selectVersion, ScanAssistant, a, version)
}

// LastVersion implements assistant.Tx.
func (tx *Tx) LastVersion(a id.Assistant) (int, error) {
	return the(tx, ErrNoAssistant, lastVersion, number[int], a)
}

// DeleteAssistant implements assistant.Tx.
func (tx *Tx) DeleteAssistant(a id.Assistant) error {
	if err := tx.change(ErrNoAssistant, fmt.Sprintf("delete assistant %s", a), deleteAssistant, a); err != nil {
		return err
	}
	return tx.Exec(deleteVersions, a)
}

// ThreadsOf implements assistant.Tx.
func (tx *Tx) ThreadsOf(a id.Assistant) ([]id.Thread, error) {
	list, err := all(tx, threadsOfAssistant, text[id.Thread], `"`+string(a))
	if err != nil || tx.Reach.Threads == nil {
		return list, err
	}
	list = slices.DeleteFunc(list, func(t id.Thread) bool {
		var ok bool
		if err == nil {
			ok, err = tx.Reaches(t)
		}
		return !ok
	})
	return list, err
}
