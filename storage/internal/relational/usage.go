package relational

import (
	"context"
	"fmt"

	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// usedByCheckpoints counts checkpoints and the bytes of their JSON; %[1]s is the function for the
// length in bytes.
const usedByCheckpoints = "SELECT count(*), coalesce(sum(%[1]s(checkpoint) + %[1]s(metadata)), 0) FROM checkpoints WHERE thread_id = $1"

var (
	UsedByCheckpoints = differing(fmt.Sprintf(usedByCheckpoints, "pg_column_size"), fmt.Sprintf(usedByCheckpoints, "length"))
	UsedByWrites      = same("SELECT count(*), coalesce(sum(octet_length(blob)), 0) FROM checkpoint_writes WHERE thread_id = $1")
	UsedByChannels    = same("SELECT channel, count(*), coalesce(sum(octet_length(blob)), 0) FROM checkpoint_blobs WHERE thread_id = $1 GROUP BY channel")
	SizesOfParts      = same("SELECT p.part - (o.owner << 28), octet_length(p.data) FROM list_owners o JOIN list_parts p " +
		"ON p.part BETWEEN o.owner << 28 AND ((o.owner + 1) << 28) - 1 WHERE o.thread_id = $1")
)

// Usage implements thread.Store.
func (s threadStore) Usage(ctx context.Context, t id.Thread) (thread.Usage, error) {
	u, err := fromThread(ctx, s.base, t, s.db.Snapshot, func(q Querier, t id.Thread) (thread.Usage, error) { return s.usage(q, t) })
	if err != nil {
		return u, fmt.Errorf("storage of thread %s: %w", t, err)
	}
	return u, nil
}

// usage sums the bytes of each kind of data of a thread.
func (s threadStore) usage(q Querier, t id.Thread) (thread.Usage, error) {
	u := thread.Usage{Channels: map[string]thread.Amount{}}
	amount := func(a *thread.Amount) func(Row) error {
		return func(r Row) error {
			*a = thread.Amount{Rows: int(r.Int(0)), Bytes: r.Int(1)}
			return nil
		}
	}
	if err := q.Ask(UsedByCheckpoints, amount(&u.Checkpoints), t); err != nil {
		return u, err
	}
	if err := q.Ask(UsedByWrites, amount(&u.Writes), t); err != nil {
		return u, err
	}
	if err := q.Query(UsedByChannels, func(r Row) error {
		u.Channels[r.Text(0)] = thread.Amount{Rows: int(r.Int(1)), Bytes: r.Int(2)}
		return nil
	}, t); err != nil {
		return u, err
	}
	lists, err := all(q, ListsOf, scanList, t)
	if err != nil || len(lists) == 0 {
		return u, err
	}
	named, sets := map[string]*compact.Set{}, make([]*compact.Set, len(lists))
	for i, l := range lists {
		if named[l.channel] == nil {
			named[l.channel] = new(compact.Set)
		}
		sets[i] = named[l.channel]
	}
	if err := s.db.Parts(q, t, valuesOf(lists), sets); err != nil {
		return u, err
	}
	sizes := map[uint32]int64{}
	err = q.Query(SizesOfParts, func(r Row) error {
		sizes[uint32(r.Int(0))] = r.Int(1)
		return nil
	}, t)
	rows.CountParts(&u, named, sizes)
	return u, err
}
