package relational

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/eventstore"
	"understudy/id"
	"understudy/thread/search"
)

const searchColumns = "SELECT e.body, e.thread_id, e.seq, e.first_seq, e.run_id, e.type, e.message_id, e.metadata, e.created_at, b.content"

var (
	// UnindexedBodies returns a row without content for a body that is gone.
	UnindexedBodies = same("SELECT p.body, b.content FROM (SELECT body FROM search_pending ORDER BY body DESC LIMIT $1) p LEFT JOIN event_bodies b ON b.body = p.body ORDER BY p.body")
	// MessageBodies are those of messages above one, with whether they are indexed or to be.
	MessageBodies = differing("SELECT DISTINCT body FROM events WHERE category = 'message' AND body > $1 ORDER BY body LIMIT $2",
		"SELECT DISTINCT body FROM events INDEXED BY events_body WHERE category = 'message' AND body > $1 ORDER BY body LIMIT $2")
	// NewestBodies are those of messages up to one, newest first.
	NewestBodies = differing("SELECT DISTINCT body FROM events WHERE category = 'message' AND body <= $1 ORDER BY body DESC LIMIT $2",
		"SELECT DISTINCT body FROM events INDEXED BY events_body WHERE category = 'message' AND body <= $1 ORDER BY body DESC LIMIT $2")
	// MatchWords returns bodies up to one whose words match, newest first. Postgres reads all places of the words in the index before it sorts them: common words
	// are found among the newest messages, without it.
	MatchWords = differing(
		"WITH found AS MATERIALIZED (SELECT body FROM message_words WHERE words @@ $1::text::tsquery) SELECT body FROM found WHERE body <= $2 ORDER BY body DESC LIMIT $3",
		"SELECT rowid FROM message_words WHERE message_words MATCH $1 AND rowid <= $2 ORDER BY rowid DESC LIMIT $3",
	)
	// MessagesOfBodies are all messages with some bodies: those of forks have the same.
	MessagesOfBodies = differing(
		searchColumns+", t.metadata FROM events e JOIN event_bodies b ON b.body = e.body JOIN threads t ON t.thread_id = e.thread_id WHERE e.body = ANY($1) AND e.category = 'message' ORDER BY e.body DESC, e.thread_id",
		searchColumns+", t.metadata FROM (SELECT value FROM json_each($1)) j CROSS JOIN events e INDEXED BY events_body ON e.body = j.value AND e.category = 'message' JOIN event_bodies b ON b.body = e.body JOIN threads t ON t.thread_id = e.thread_id ORDER BY e.body DESC, e.thread_id")
	MessagesOfThread = same(searchColumns + ", NULL FROM events e JOIN event_bodies b ON b.body = e.body WHERE e.thread_id = $1 AND e.seq < $2 AND e.category = 'message' ORDER BY e.seq DESC")
)

// BackfillBodies is how many messages one step of a backfill looks at.
const BackfillBodies = 1000

// MatchesAtOnce is how many bodies a lookup in the index returns at most.
const MatchesAtOnce = 2000

// ToIndex implements search.Store.
func (s searchStore) ToIndex(ctx context.Context, limit int) ([]search.Document, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]search.Document, error) {
		return all(q, UnindexedBodies, func(r Row) search.Document { return search.Document{Body: r.Int(0), Content: r.Bytes(1)} }, limit)
	})
}

// BodiesAbove returns bodies of messages above one.
func (s searchStore) BodiesAbove(ctx context.Context, above int64) ([]int64, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]int64, error) { return all(q, MessageBodies, number[int64], above, BackfillBodies) })
}

// MatchingMessages is search.Store.Matching; match are the terms in the language of the engine's index.
func (s searchStore) MatchingMessages(ctx context.Context, of search.Query, match string, fn func(search.Row) bool) (end search.Place, err error) {
	read := s.matchingEverywhere
	if of.Thread != "" {
		read = s.matchingInThread
	}
	if err := s.db.Snapshot(ctx, func(q Querier) (err error) {
		end, err = read(ctx, q, of, match, fn)
		return err
	}); err != nil {
		return search.Place{}, fmt.Errorf("search messages: %w", err)
	}
	return end, nil
}

func (searchStore) matchingInThread(ctx context.Context, q Querier, of search.Query, _ string, fn func(search.Row) bool) (search.Place, error) {
	if _, err := ThreadInReach(ctx, q, of.Thread); err != nil {
		return search.Place{}, err
	}
	before := int64(of.Before.Seq)
	if before == 0 {
		before = unlimited
	}
	return search.Place{}, q.Walk(1, MessagesOfThread, func(r Row) error {
		if !fn(scanFound(r)) {
			return ErrStop
		}
		return nil
	}, of.Thread, before)
}

// bodiesAtOnce is how many bodies have their messages read at a time.
const bodiesAtOnce = 50

// afterThreads is above every thread ID.
const afterThreads = id.Thread("g")

// matchingEverywhere looks at the newest messages, and then once into the index.
func (searchStore) matchingEverywhere(ctx context.Context, q Querier, of search.Query, match string, fn func(search.Row) bool) (end search.Place, err error) {
	reach := access.Reach(ctx, access.Threads)
	upTo := of.Before.Body
	if upTo == 0 {
		upTo = unlimited
	}
	newest := max(0, of.Newest)
	for indexed := false; !indexed; {
		var found []int64
		full := newest
		if indexed = newest == 0; indexed {
			full = MatchesAtOnce
			found, err = all(q, MatchWords, number[int64], match, upTo, MatchesAtOnce)
		} else {
			found, err = all(q, NewestBodies, number[int64], upTo, newest)
			newest = 0
		}
		if err != nil {
			return end, err
		}
		last, stopped := len(found) < full, false
		if len(found) > 0 {
			upTo = found[len(found)-1] - 1
		}
		for len(found) > 0 && !stopped {
			n := min(bodiesAtOnce, len(found))
			if err := q.Walk(1, MessagesOfBodies, func(r Row) error {
				seen := r.Int(0) == of.Before.Body && id.Thread(r.Text(1)) <= of.Before.Thread
				if seen || reach != nil && !reach.Match(r.Bytes(10)) {
					return nil
				}
				if stopped = !fn(scanFound(r)); stopped {
					return ErrStop
				}
				return nil
			}, found[:n]); err != nil {
				return end, err
			}
			found = found[n:]
		}
		if last || stopped {
			return end, nil
		}
	}
	return search.Place{Body: upTo + 1, Thread: afterThreads}, nil
}

func scanFound(r Row) search.Row {
	row := search.Row{
		Place: search.Place{Body: r.Int(0), Thread: id.Thread(r.Text(1)), Seq: eventstore.Seq(r.Int(2))}, Shown: eventstore.Seq(r.Int(3)),
		Run: id.Run(r.Text(4)), Type: r.Text(5), MessageID: r.Text(6), Hidden: gjson.GetBytes(r.Bytes(7), "rolled_back").Bool(), CreatedAt: r.Time(8), Content: r.Bytes(9),
	}
	if row.Shown == 0 {
		row.Shown = row.Seq
	}
	return row
}
