package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"understudy/assistant"
	"understudy/id"
	"understudy/storage/internal/relational"
)

// Assistant is assistant.Tx.Assistant and run.Tx.Assistant. Who changes assistants locks them; runs only look.
func (tx *Tx) Assistant(a id.Assistant) (*assistant.Assistant, error) {
	if tx.exclusive {
		return tx.Tx.Assistant(a)
	}
	return tx.guarded(a)
}

// What runs are made of changes seldom, so it is kept in memory. A transaction that uses it has the database check, with its last statements,
// that the row is still the same: else it is run again with what is there.

// stampedAssistant has what tells versions of the row apart, behind its columns.
const stampedAssistant = "SELECT " + relational.AssistantColumns + ", xmin::text FROM assistants WHERE assistant_id = $1"

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
