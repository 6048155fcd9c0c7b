package relational

import (
	"context"
	"encoding/json"
	"time"

	"understudy/auth"
	"understudy/internal/fault"
)

const sessionColumns = "session_id, identity, content, created_at, renewed_at, expires_at, ends_at"

func scanSession(r Row) *auth.Session {
	return &auth.Session{ID: r.Text(0), Identity: r.Text(1), Content: r.Bytes(2), CreatedAt: r.Time(3), Renewed: r.Time(4), Expires: r.Time(5), Ends: r.Time(6)}
}

var (
	insertSession = same(insertInto("sessions", sessionColumns))
	sessionsOf    = differing("SELECT "+sessionColumns+" FROM sessions WHERE session_id = ANY($1)", "SELECT "+sessionColumns+" FROM sessions WHERE session_id IN (SELECT value FROM json_each($1))")
	extendSession = differing("UPDATE sessions SET expires_at = $2 WHERE session_id = $1 AND expires_at < $2 AND NOT replaced",
		"UPDATE sessions SET expires_at = $2 WHERE session_id = $1 AND expires_at < $2 AND replaced = 0")
	replaceSession = differing("UPDATE sessions SET replaced = true, content = $3, expires_at = LEAST(expires_at, $2) WHERE session_id = $1 AND NOT replaced",
		"UPDATE sessions SET replaced = 1, content = $3, expires_at = min(expires_at, $2) WHERE session_id = $1 AND replaced = 0")
	endSession    = same("DELETE FROM sessions WHERE session_id = $1")
	sweepSessions = same("DELETE FROM sessions WHERE session_id IN (SELECT session_id FROM sessions WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)")
)

// InsertSession implements auth.SessionStore.
func (s keyStore) InsertSession(ctx context.Context, x *auth.Session) error {
	return s.db.Write(ctx, func(tx *Tx) error { return tx.insertSession(x) })
}

func (tx *Tx) insertSession(x *auth.Session) error {
	return tx.Exec(insertSession, x.ID, x.Identity, []byte(x.Content), x.CreatedAt, x.Renewed, x.Expires, x.Ends)
}

// SessionsOf implements auth.SessionStore.
func (s keyStore) SessionsOf(ctx context.Context, ids []string) ([]*auth.Session, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*auth.Session, error) { return all(q, sessionsOf, scanSession, ids) })
}

// ExtendSession implements auth.SessionStore.
func (s keyStore) ExtendSession(ctx context.Context, id string, expires time.Time) error {
	return s.db.Write(ctx, func(tx *Tx) error { return tx.Exec(extendSession, id, expires) })
}

// ReplaceSession implements auth.SessionStore.
func (s keyStore) ReplaceSession(ctx context.Context, id string, content json.RawMessage, next *auth.Session, until time.Time) (bool, error) {
	lost := fault.New(fault.NotFound, "the session was replaced or has ended")
	err := s.db.Write(ctx, func(tx *Tx) error {
		if err := tx.change(lost, "replace a session", replaceSession, id, until, []byte(content)); err != nil {
			return err
		}
		return tx.insertSession(next)
	})
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// EndSession implements auth.SessionStore.
func (s keyStore) EndSession(ctx context.Context, id string) error {
	return s.db.Write(ctx, func(tx *Tx) error { return tx.Exec(endSession, id) })
}

// SweepSessions implements auth.SessionStore.
func (s keyStore) SweepSessions(ctx context.Context, before time.Time, n int) (swept int, err error) {
	err = s.db.Write(ctx, func(tx *Tx) (err error) {
		count, err := tx.Affected(sweepSessions, before, n)
		swept = int(count)
		return err
	})
	return swept, err
}
