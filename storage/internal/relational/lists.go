package relational

import (
	"context"
	"errors"
	"fmt"
	"math"

	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
)

// A thread is listed when the index of metadata has the items of its lists: threads.listed is its updated_at. Threads from before the column, and those that a
// server of before writes meanwhile, are not. Searches by items read them too, from an index that has only them, until a sweep has listed them. Whether there is
// a list in encrypted metadata is not known.

var (
	// notListed is as in the index threads_unlisted.
	notListed = differing(`listed IS DISTINCT FROM updated_at AND (position('\x5b'::bytea IN metadata) > 0 OR substr(metadata, 1, 1) <> '\x7b'::bytea)`,
		"listed IS NOT updated_at AND (instr(metadata, x'5b') > 0 OR substr(metadata, 1, 1) <> x'7b')")
	// SeekUnlisted find the next threads that are not listed, after a place, descending and ascending.
	SeekUnlisted = [2]Statement{seekUnlisted("<", " DESC"), seekUnlisted(">", "")}

	// CountUnlisted reads the index in its order: Postgres, which takes half of the threads to be not listed, would read the table.
	CountUnlisted = same("SELECT count(*) FROM (SELECT 1 FROM threads WHERE ").Then(notListed).Then(same(" ORDER BY updated_at, thread_id LIMIT $1) AS counted"))

	setListed = same("UPDATE threads SET listed = updated_at WHERE thread_id = $1")
)

func seekUnlisted(op, direction string) Statement {
	return same("SELECT updated_at, thread_id FROM threads WHERE ").Then(notListed).
		Then(same(" AND (updated_at, thread_id) " + op + " ($1, $2) ORDER BY updated_at" + direction + ", thread_id" + direction + " LIMIT $3"))
}

// listedAtOnce is how many threads one transaction lists.
const listedAtOnce = 100

// ListThreads implements thread.Store.
func (s *Store) ListThreads(ctx context.Context, more func() bool) (n int, err error) {
	for after := (place{math.MaxInt64, rows.LastText}); more(); {
		var threads []id.Thread
		if err := s.db.Read(ctx, func(q Querier) error {
			threads = nil
			return q.Query(SeekUnlisted[0], func(r Row) error {
				after = place{r.Int(0), r.Text(1)}
				threads = append(threads, id.Thread(after.thread))
				return nil
			}, after.updated, after.thread, listedAtOnce)
		}); err != nil {
			return n, errors.Join(err, fmt.Errorf("threads that are not listed: %w", err))
		}
		if len(threads) == 0 {
			break
		}
		failed := s.list(ctx, threads...)
		if failed == nil {
			n += len(threads)
			continue
		}
		for _, t := range threads { // one that cannot be read keeps no other from being listed
			if failed = s.list(ctx, t); failed == nil {
				n++
			} else if ctx.Err() != nil || fault.Is(failed, fault.Unavailable) {
				return n, failed
			} else {
				err = errors.Join(err, failed)
			}
		}
	}
	return n, err
}

// list adds the items of threads' lists to the index.
func (s *Store) list(ctx context.Context, threads ...id.Thread) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		tx.Lock(threads...)
		for _, t := range threads {
			row, err := tx.Thread(t)
			if fault.Is(err, fault.NotFound) {
				continue // deleted meanwhile
			}
			if err != nil {
				return fmt.Errorf("list thread %s: %w", t, err)
			}
			if err := tx.IndexThread(t, contain.Terms(row.Metadata), micros(row.UpdatedAt)); err != nil {
				return fmt.Errorf("list thread %s: %w", t, err)
			}
			if err := tx.Exec(setListed, t); err != nil {
				return fmt.Errorf("list thread %s: %w", t, err)
			}
		}
		return nil
	})
}
