package sqlite

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// Which values only the checkpoints of one run use is known after reading all others of the thread.
// On a long thread that takes longer than other writers should wait, so a reading connection does
// it: DeleteRunCheckpoints requests a plan by returning unplanned, write makes the plan and runs
// the function again. The plan is valid while the thread's checkpoints have not changed.

const (
	// longThread is the number of checkpoints from which on a plan is made.
	longThread = 500
	// plannings is how many plans are made for one write. After that everything is read inside the
	// transaction, so that a busy thread cannot postpone it forever.
	plannings = 3
)

// unplanned is the error that requests a plan.
type unplanned struct {
	thread id.Thread
	run    id.Run
}

func (u *unplanned) Error() string {
	return fmt.Sprintf("deleting the checkpoints of run %s of thread %s needs a plan", u.run, u.thread)
}

// dropPlan lists what deleting the checkpoints of a run deletes.
type dropPlan struct {
	unplanned
	mark uint64 // of the thread before the plan was read
	step thread.PruneStep
}

// marks counts changes of the checkpoints of threads, in a fixed number of counters. Threads that
// share one only cause unneeded plans. Only the writer's goroutine uses it.
type marks struct {
	seed   maphash.Seed
	counts [1024]uint64
}

func newMarks() *marks { return &marks{seed: maphash.MakeSeed()} }

func (m *marks) of(t id.Thread) *uint64 {
	return &m.counts[maphash.String(m.seed, string(t))%uint64(len(m.counts))]
}

// mark records that a thread's checkpoints change. A rollback does not undo it, which only causes
// an unneeded plan.
func (tx *Tx) mark(t id.Thread) { *tx.lists.marks.of(t)++ }

// planned returns the plan to delete the checkpoints of a run, nil if they are to be read in this
// transaction, or unplanned.
func (tx *Tx) planned(t id.Thread, r id.Run) (*dropPlan, error) {
	if p := tx.plan; p != nil && p.thread == t && p.run == r && p.mark == *tx.lists.marks.of(t) {
		return p, nil
	}
	if tx.mayPlan <= 0 {
		return nil, nil
	}
	n := 0
	if _, err := tx.one("SELECT count(*) FROM (SELECT 1 FROM checkpoints WHERE thread_id = ? LIMIT +?)", func(s *sqlite.Stmt) error {
		n = s.ColumnInt(0)
		return nil
	}, t, tx.mayPlan); err != nil || n < tx.mayPlan {
		return nil, err
	}
	return nil, &unplanned{t, r}
}

// repeats bounds how often a write runs because of names or keys that were not known.
const repeats = 8

// write runs fn as writeOnce does, and makes the plans that it requests, and the keys.
func (s *Store) write(ctx context.Context, fn func(*Tx) error) error {
	reach := relational.ReachOf(ctx)
	var plan *dropPlan
	for n := 0; ; n++ {
		err := s.writeOnce(ctx, func(tx *Tx) error {
			tx.Reach = reach
			if tx.plan = plan; n < plannings {
				tx.mayPlan = s.longThread
			}
			return fn(tx)
		})
		var asks *unplanned
		if !errors.As(err, &asks) {
			if again, why := s.writer.keys.Again(ctx, err); !again || n >= repeats {
				return why
			}
			continue
		}
		if plan, err = s.planDrop(ctx, asks); err != nil {
			return err
		}
	}
}

// planDrop makes a plan on a reading connection.
func (s *Store) planDrop(ctx context.Context, asks *unplanned) (*dropPlan, error) {
	p := &dropPlan{unplanned: *asks}
	// When this write has ended, all earlier writes have. So a snapshot that begins now contains
	// every change that the mark counts.
	if err := s.writeOnce(ctx, func(tx *Tx) error {
		p.mark = *tx.lists.marks.of(p.thread)
		return nil
	}); err != nil {
		return nil, err
	}
	err := s.snapshot(ctx, func(c *sqlite.Conn) error { return p.read(c) })
	if err != nil {
		return nil, fmt.Errorf("plan to delete the checkpoints of run %s: %w", p.run, err)
	}
	return p, nil
}

// read finds the run's checkpoints, the values that only they name, and the parts that only these
// values name.
func (p *dropPlan) read(c *sqlite.Conn) error {
	type value struct {
		ns string
		rows.ChannelVersion
	}
	freed, named := map[value]bool{}, map[value]bool{}
	if err := query(c, "SELECT checkpoint_ns, checkpoint_id, run_id IS ?2, checkpoint FROM checkpoints WHERE thread_id = ?1", func(s *sqlite.Stmt) error {
		ns, of := s.ColumnText(0), named
		if s.ColumnBool(2) {
			of = freed
			p.step.Checkpoints = append(p.step.Checkpoints, checkpointer.Key{Thread: p.thread, NS: ns, ID: id.Checkpoint(s.ColumnText(1))})
		}
		versions, err := rows.ChannelVersions(columnBytes(s, 3))
		for _, v := range versions {
			of[value{ns, v}] = true
		}
		return err
	}, p.thread, p.run); err != nil {
		return err
	}
	for v := range freed {
		if named[v] {
			delete(freed, v)
			continue
		}
		p.step.Values = append(p.step.Values, thread.PruneValue{NS: v.ns, Channel: v.Channel, Version: v.Version})
	}
	var gone, used compact.Set
	l := newLoader(c, p.thread)
	if err := query(c, relational.ListsOf.SQLite, func(s *sqlite.Stmt) error {
		of := &used
		if freed[value{s.ColumnText(0), rows.ChannelVersion{Channel: s.ColumnText(1), Version: s.ColumnText(2)}}] {
			of = &gone
		}
		return l.named(columnBytes(s, 3), of)
	}, p.thread); err != nil {
		return err
	}
	gone.Remove(used)
	for _, r := range gone.Runs() {
		p.step.Parts = append(p.step.Parts, thread.PruneParts{First: r.First, Count: r.Count})
	}
	return nil
}
