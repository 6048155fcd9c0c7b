package sqlite

import (
	"context"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"

	"understudy/thread/search"
)

var _ search.Store = (*Store)(nil)

const (
	notePending = "INSERT OR IGNORE INTO search_pending (body) VALUES (?)"
	// stillPending returns the size of a body, which differs from that of one that got its number after it was deleted.
	stillPending = "SELECT octet_length(b.content) FROM search_pending p JOIN event_bodies b ON b.body = p.body WHERE p.body = ?"
	isIndexed    = "SELECT 1 FROM message_words WHERE rowid = ?"
	putWords     = "INSERT INTO message_words (rowid, words) VALUES (?, ?)"
	dropPending  = "DELETE FROM search_pending WHERE body = ?"
	hasWords     = "SELECT 1 FROM (SELECT 1 FROM message_words_docsize LIMIT 1) UNION ALL SELECT 1 FROM (SELECT 1 FROM search_pending LIMIT 1)"
)

// SetSearch implements search.Store.
func (s *Store) SetSearch(ctx context.Context, on bool) error {
	if on && !s.writer.keys.Encrypts() {
		s.writer.indexing.Store(true)
		return nil
	}
	s.writer.indexing.Store(false)
	if err := s.clearSearch(ctx); err != nil || !on {
		return err
	}
	return search.ErrEncrypted
}

func (s *Store) clearSearch(ctx context.Context) error {
	return s.write(ctx, func(tx *Tx) error {
		if any, err := tx.one(hasWords, nil); err != nil || !any {
			return err
		}
		if err := tx.exec("INSERT INTO message_words (message_words) VALUES ('delete-all')"); err != nil {
			return fmt.Errorf("clear the index of words: %w", err)
		}
		return tx.exec("DELETE FROM search_pending")
	})
}

// NoteMissing implements search.Store.
func (s *Store) NoteMissing(ctx context.Context, above int64) (last int64, err error) {
	bodies, err := s.BodiesAbove(ctx, above)
	if err != nil || len(bodies) == 0 {
		return 0, err
	}
	var missing []int64
	if err := s.read(ctx, func(conn *sqlite.Conn) error {
		for _, b := range bodies {
			if found, err := one(conn, isIndexed, nil, b); err != nil {
				return err
			} else if !found {
				missing = append(missing, b)
			}
		}
		return nil
	}); err != nil || len(missing) == 0 {
		return bodies[len(bodies)-1], err
	}
	return bodies[len(bodies)-1], s.write(ctx, func(tx *Tx) error {
		for _, b := range missing {
			if err := tx.exec(notePending, b); err != nil {
				return err
			}
		}
		return nil
	})
}

// PutWords implements search.Store.
func (s *Store) PutWords(ctx context.Context, list []search.Document) error {
	return s.write(ctx, func(tx *Tx) error {
		for _, d := range list {
			size := -1
			if _, err := tx.one(stillPending, func(st *sqlite.Stmt) error {
				size = st.ColumnInt(0)
				return nil
			}, d.Body); err != nil {
				return err
			}
			if size >= 0 && size != d.Size {
				continue
			}
			if indexed, err := tx.one(isIndexed, nil, d.Body); err != nil {
				return err
			} else if size >= 0 && !indexed {
				if err := tx.exec(putWords, d.Body, strings.Join(d.Words, " ")); err != nil {
					return fmt.Errorf("index the words of a message: %w", err)
				}
			}
			if err := tx.exec(dropPending, d.Body); err != nil {
				return err
			}
		}
		return nil
	})
}

// Matching implements search.Store.
func (s *Store) Matching(ctx context.Context, of search.Query, fn func(search.Row) bool) (end search.Place, err error) {
	return s.MatchingMessages(ctx, of, matchOf(of.Terms), fn)
}

// matchOf returns terms in the language of FTS5. Words consist of letters and digits.
func matchOf(t search.Terms) string {
	words := t.Words()
	for i, w := range words {
		words[i] = `"` + w + `"`
	}
	if t.Prefix {
		words[len(words)-1] += "*"
	}
	return strings.Join(words, " ")
}
