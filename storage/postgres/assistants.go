package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"understudy/assistant"
	"understudy/id"
	"understudy/storage/internal/relational"
)

// Assistant implements assistant.Tx and run.Tx. Changes lock the row; runs read it without a lock.
func (tx *Tx) Assistant(a id.Assistant) (*assistant.Assistant, error) {
	if tx.exclusive {
		return tx.Tx.Assistant(a)
	}
	return relational.AssistantIn(tx.Reach.Assistants)(tx.guarded(a))
}

// Assistants change rarely and every run reads one, so they are cached in memory. Other servers
// may change them: a transaction that uses a cached row lets Postgres verify the row with its last
// statements, and is run again with the current row if that fails.

// stampedAssistant adds xmin, which identifies the version of the row.
const stampedAssistant = "SELECT " + relational.AssistantColumns + ", xmin::text FROM assistants WHERE assistant_id = $1"

// sameAssistant fails with a division by zero if the row has another version. An error aborts the
// transaction without a round trip of its own.
const sameAssistant = "SELECT 1 / count(*) FROM assistants WHERE assistant_id = $1 AND xmin = $2::text::xid"

// stamped is an assistant and the version of its row.
type stamped struct {
	assistant assistant.Assistant
	stamp     string
}

// knownAssistants bounds the cache; a full one is emptied.
const knownAssistants = 1000

// guarded returns an assistant that is verified to be unchanged when the transaction commits.
func (tx *Tx) guarded(a id.Assistant) (*assistant.Assistant, error) {
	s := tx.store
	s.mu.Lock()
	known := s.known[a]
	s.mu.Unlock()
	if known == nil {
		known = &stamped{}
		found, err := one(tx, stampedAssistant, func(r *row) error {
			known.assistant, known.stamp = *relational.ScanAssistant(r), r.Text(10)
			return nil
		}, a)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, relational.ErrNoAssistant
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

// outdated reports whether a transaction failed because a cached assistant was outdated, and
// empties the cache.
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
