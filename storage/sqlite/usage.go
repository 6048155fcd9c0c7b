package sqlite

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

const (
	usedByCheckpoints = "SELECT count(*), coalesce(sum(length(checkpoint) + length(metadata)), 0) FROM checkpoints WHERE thread_id = ?"
	usedByWrites      = "SELECT count(*), coalesce(sum(length(blob)), 0) FROM checkpoint_writes WHERE thread_id = ?"
	usedByChannels    = "SELECT channel, count(*), coalesce(sum(length(blob)), 0) FROM checkpoint_blobs WHERE thread_id = ? GROUP BY channel"
	sizesOfParts      = "SELECT part, length(data) FROM list_parts WHERE part BETWEEN ? AND ?"
)

// Usage is thread.Store.Usage.
func (s *Store) Usage(ctx context.Context, t id.Thread) (u thread.Usage, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		u = thread.Usage{Channels: map[string]thread.Amount{}}
		for text, a := range map[string]*thread.Amount{usedByCheckpoints: &u.Checkpoints, usedByWrites: &u.Writes} {
			if _, err := one(c, text, func(st *sqlite.Stmt) error {
				*a = thread.Amount{Rows: st.ColumnInt(0), Bytes: st.ColumnInt64(1)}
				return nil
			}, t); err != nil {
				return err
			}
		}
		if err := query(c, usedByChannels, func(st *sqlite.Stmt) error {
			u.Channels[st.ColumnText(0)] = thread.Amount{Rows: st.ColumnInt(1), Bytes: st.ColumnInt64(2)}
			return nil
		}, t); err != nil {
			return err
		}
		owner, found, err := findOwner(c, t)
		if err != nil || !found {
			return err
		}
		named := map[string]*compact.Set{}
		l := newLoader(c, t)
		if err := query(c, listsOf, func(st *sqlite.Stmt) error {
			set := named[st.ColumnText(1)]
			if set == nil {
				set = new(compact.Set)
				named[st.ColumnText(1)] = set
			}
			return l.named(columnBytes(st, 3), set)
		}, t); err != nil {
			return err
		}
		sizes := map[uint32]int64{}
		err = query(c, sizesOfParts, func(st *sqlite.Stmt) error {
			sizes[uint32(st.ColumnInt64(0)-partKey(owner, 0))] = st.ColumnInt64(1)
			return nil
		}, partKey(owner, 0), partKey(owner+1, 0)-1)
		rows.CountParts(&u, named, sizes)
		return err
	})
	if err != nil {
		return u, fmt.Errorf("storage of thread %s: %w", t, err)
	}
	return u, nil
}
