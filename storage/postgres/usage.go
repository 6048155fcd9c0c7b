package postgres

import (
	"context"
	"fmt"

	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

const (
	usedByCheckpoints = "SELECT count(*), coalesce(sum(pg_column_size(checkpoint) + pg_column_size(metadata)), 0) FROM checkpoints WHERE thread_id = $1"
	usedByWrites      = "SELECT count(*), coalesce(sum(octet_length(blob)), 0) FROM checkpoint_writes WHERE thread_id = $1"
	usedByChannels    = "SELECT channel, count(*), coalesce(sum(octet_length(blob)), 0) FROM checkpoint_blobs WHERE thread_id = $1 GROUP BY channel"
	sizesOfParts      = "SELECT p.part - (o.owner << 28), octet_length(p.data) FROM list_owners o JOIN list_parts p ON p.part > o.owner << 28 AND p.part < (o.owner + 1) << 28 " +
		"WHERE o.thread_id = $1"
)

// Usage is thread.Store.Usage.
func (s *Store) Usage(ctx context.Context, t id.Thread) (u thread.Usage, err error) {
	err = s.snapshot(ctx, func(q *reader) error {
		u = thread.Usage{Channels: map[string]thread.Amount{}}
		for text, a := range map[string]*thread.Amount{usedByCheckpoints: &u.Checkpoints, usedByWrites: &u.Writes} {
			if err := q.query(text, func(r *row) error {
				*a = thread.Amount{Rows: int(r.Int(0)), Bytes: r.Int(1)}
				return nil
			}, t); err != nil {
				return err
			}
		}
		if err := q.query(usedByChannels, func(r *row) error {
			u.Channels[r.Text(0)] = thread.Amount{Rows: int(r.Int(1)), Bytes: r.Int(2)}
			return nil
		}, t); err != nil {
			return err
		}
		values := map[string][][]byte{}
		if err := q.query(listsOf, func(r *row) error {
			values[r.Text(1)] = append(values[r.Text(1)], r.Bytes(3))
			return nil
		}, t); err != nil || len(values) == 0 {
			return err
		}
		named := map[string]*compact.Set{}
		l := newLoader(q, t)
		for channel, list := range values {
			named[channel] = new(compact.Set)
			if err := l.named(list, named[channel]); err != nil {
				return err
			}
		}
		sizes := map[uint32]int64{}
		err := q.query(sizesOfParts, func(r *row) error {
			sizes[uint32(r.Int(0))] = r.Int(1)
			return nil
		}, t)
		rows.CountParts(&u, named, sizes)
		return err
	})
	if err != nil {
		return u, fmt.Errorf("storage of thread %s: %w", t, err)
	}
	return u, nil
}
