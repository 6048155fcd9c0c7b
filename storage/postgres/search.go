package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"understudy/thread/search"
)

var _ search.Store = (*Store)(nil)

const (
	// putWords locks the bodies, so that none is deleted meanwhile.
	putWords = `WITH there AS (SELECT body FROM event_bodies WHERE body = ANY($1::bigint[]) ORDER BY body FOR KEY SHARE), put AS (
			INSERT INTO message_words (body, words)
			SELECT body, array_to_tsvector(string_to_array(words, ' ')) FROM unnest($1::bigint[], $2::text[]) AS given (body, words) JOIN there USING (body)
			ON CONFLICT DO NOTHING
		)
		DELETE FROM search_pending WHERE body = ANY($1::bigint[])`
	noteMissing = `INSERT INTO search_pending (body) SELECT body FROM unnest($1::bigint[]) AS given (body)
		WHERE NOT EXISTS (SELECT 1 FROM message_words w WHERE w.body = given.body) ON CONFLICT DO NOTHING`
	hasWords = "SELECT EXISTS (SELECT 1 FROM message_words) OR EXISTS (SELECT 1 FROM search_pending)"
)

// SetSearch implements search.Store.
func (s *Store) SetSearch(ctx context.Context, on bool) error {
	if on && !s.keys.Encrypts() {
		s.indexing.Store(true)
		return nil
	}
	s.indexing.Store(false)
	if err := s.clearSearch(ctx); err != nil || !on {
		return err
	}
	return search.ErrEncrypted
}

func (s *Store) clearSearch(ctx context.Context) error {
	found := false
	if err := s.read(ctx, func(q *reader) error {
		return q.query(hasWords, func(r *row) error {
			found = r.Bool(0)
			return nil
		})
	}); err != nil || !found {
		return err
	}
	return s.write(ctx, func(tx *Tx) error { return tx.exec("TRUNCATE message_words, search_pending") })
}

// NoteMissing implements search.Store.
func (s *Store) NoteMissing(ctx context.Context, above int64) (last int64, err error) {
	bodies, err := s.BodiesAbove(ctx, above)
	if err != nil || len(bodies) == 0 {
		return 0, err
	}
	return bodies[len(bodies)-1], s.write(ctx, func(tx *Tx) error { return tx.exec(noteMissing, bodies) })
}

// PutWords implements search.Store.
func (s *Store) PutWords(ctx context.Context, list []search.Document) error {
	bodies, words := make([]int64, len(list)), make([]string, len(list))
	for i, d := range list {
		bodies[i], words[i] = d.Body, strings.Join(d.Words, " ")
	}
	if err := s.write(ctx, func(tx *Tx) error { return tx.exec(putWords, bodies, words) }); err != nil {
		return fmt.Errorf("index the words of messages: %w", err)
	}
	return nil
}

// Matching implements search.Store.
func (s *Store) Matching(ctx context.Context, of search.Query, fn func(search.Row) bool) (end search.Place, err error) {
	return s.MatchingMessages(ctx, of, matchOf(of.Terms), fn)
}

// matchOf returns terms as a tsquery. Words consist of letters and digits.
func matchOf(t search.Terms) string {
	words := slices.Clone(t.Words())
	for i, w := range words {
		words[i] = "'" + w + "'"
	}
	if t.Prefix {
		words[len(words)-1] += ":*"
	}
	return strings.Join(words, " & ")
}
