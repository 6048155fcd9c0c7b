package stream

import (
	"context"

	"understudy/access"
	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
)

// members knows which runs belong to a thread. The live stream of a deleted thread may still have records, because Redis is unreachable or because another
// server still executes the last run. A thread that was created later with the same id must not show them: it may have another owner.
type members struct {
	f      *Followers
	thread id.Thread
	reach  *access.Filter // of the reader; nil: it may read every thread
	known  map[id.Run]bool
}

// membersOf returns the members of a thread for a reader whose request has ctx.
func membersOf(ctx context.Context, f *Followers, t id.Thread) members {
	return members{f: f, thread: t, reach: access.Reach(ctx, access.Threads), known: map[id.Run]bool{}}
}

// in returns a context in which only the threads exist that the reader may read.
func (m *members) in(ctx context.Context) context.Context {
	if m.reach == nil || access.Reach(ctx, access.Threads) == m.reach {
		return ctx
	}
	return access.Narrow(access.Everything(ctx), access.Threads, m.reach)
}

// lookUp looks up the runs of records, each once. Without a reach it skips live records that are not kept, because they are not from the past.
func (m *members) lookUp(ctx context.Context, records []*bridge.Record) error {
	for _, rec := range records {
		if rec.Run == "" || rec.Event == elsewhere || !rec.Kept && m.reach == nil {
			continue
		}
		if _, known := m.known[rec.Run]; known {
			continue
		}
		_, err := m.f.Store.Run(ctx, m.thread, rec.Run)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		m.known[rec.Run] = err == nil
	}
	return nil
}

// has reports whether a record belongs to the thread. Without a reach the end of a deleted run is shown: it contains nothing of the run.
func (m *members) has(rec *bridge.Record) bool {
	of, known := m.known[rec.Run]
	return !known || of || rec.Kind == bridge.Terminal && m.reach == nil
}
