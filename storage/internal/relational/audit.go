package relational

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/access"
	"understudy/access/audit"
	"understudy/auth"
)

const auditColumns = "at, event, identity, source, resource, outcome, detail, count"

func scanAudit(r Row) audit.Entry {
	return audit.Entry{
		ID: r.Int(0), At: r.Time(1), Event: r.Text(2), Identity: r.Text(3), Source: r.Text(4), Resource: r.Text(5), Outcome: r.Text(6), Detail: r.Text(7), Count: int(r.Int(8)),
	}
}

var (
	// holdAudit lets one transaction at a time append, so that IDs are committed in their order: readers continue after the last one.
	holdAudit   = differing("LOCK TABLE audit_log IN SHARE ROW EXCLUSIVE MODE", "")
	insertAudit = same(insertInto("audit_log", auditColumns))

	auditWhere  = " WHERE ($1 = '' OR event = $1) AND ($2 = '' OR identity = $2) AND ($3 = '' OR source = $3) AND at >= $4 AND id > $5 ORDER BY id"
	auditNewest = same("SELECT id, " + auditColumns + " FROM audit_log" + auditWhere + " DESC LIMIT $6")
	auditAfter  = same("SELECT id, " + auditColumns + " FROM audit_log" + auditWhere + " LIMIT $6")

	newestAudit = same("SELECT coalesce(max(id), 0) FROM audit_log")
	// OldAudit and ManyAudit delete from the index by time and by ID.
	OldAudit  = same("DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE at < $1 ORDER BY at LIMIT $2)")
	ManyAudit = same("DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE id <= $1 AND event IN ('sign-in.failed', 'access.denied') ORDER BY id LIMIT $2)")
)

// AppendAudit implements thread.Tx.
func (tx *Tx) AppendAudit(entries ...audit.Entry) error {
	if _, err := tx.Affected(holdAudit); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	for i := range entries {
		e := &entries[i]
		if err := tx.Exec(insertAudit, micros(e.At), e.Event, e.Identity, e.Source, e.Resource, e.Outcome, e.Detail, max(1, e.Count)); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
	}
	return nil
}

// auditKey appends a change of a key by who acts in a context.
func (tx *Tx) auditKey(ctx context.Context, now time.Time, event, key, detail string) error {
	e := audit.Entry{At: now, Event: event, Source: access.Source(ctx), Resource: "key " + key, Outcome: "done", Detail: detail}
	if who := access.From(ctx); who != nil {
		e.Identity = who.Identity
	}
	return tx.AppendAudit(e)
}

// describeKey says what a key is for.
func describeKey(k *auth.Key) string {
	text := fmt.Sprintf("name %q, identity %q, scopes %s", k.Name, k.Identity, strings.Join(k.Scopes, " "))
	if !k.ExpiresAt.IsZero() {
		text += ", until " + k.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return text
}

// AppendAudit implements audit.Store.
func (s auditStore) AppendAudit(ctx context.Context, entries []audit.Entry) error {
	return s.db.Write(ctx, func(tx *Tx) error { return tx.AppendAudit(entries...) })
}

// Audit implements audit.Store.
func (s auditStore) Audit(ctx context.Context, q audit.Query) ([]audit.Entry, error) {
	statement, since := auditNewest, int64(0)
	if q.After > 0 {
		statement = auditAfter
	}
	if !q.Since.IsZero() {
		since = micros(q.Since)
	}
	list, err := from(ctx, s.db.Read, func(r Querier) ([]audit.Entry, error) {
		return all(r, statement, scanAudit, q.Event, q.Identity, q.Source, since, q.After, q.Limit)
	})
	if q.After == 0 {
		slices.Reverse(list)
	}
	return list, err
}

// TrimAudit implements audit.Store.
func (s auditStore) TrimAudit(ctx context.Context, before time.Time, keep, limit int) (int, error) {
	deleted := int64(0)
	err := s.db.Write(ctx, func(tx *Tx) error {
		newest, _, err := first(tx, newestAudit, number[int64])
		if err != nil {
			return err
		}
		if deleted, err = tx.Affected(OldAudit, micros(before), limit); err != nil {
			return err
		}
		more, err := tx.Affected(ManyAudit, newest-int64(keep), limit-int(deleted))
		deleted += more
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("trim the audit log: %w", err)
	}
	return int(deleted), nil
}
