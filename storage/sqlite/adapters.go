package sqlite

import (
	"context"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/checkpointer/saver"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/graph"
	"understudy/id"
	"understudy/proxy/record"
	"understudy/run"
	"understudy/storage/internal/relational"
	"understudy/store"
	"understudy/thread"
)

// Each service declares its own Store interface, whose Write takes a function of its own Tx. Go
// has no overloading, so each service gets an adapter: the same store with the Write it needs.

// Assistants returns the store as package assistant uses it.
func (s *Store) Assistants() assistant.Store { return assistants{s} }

// Threads returns the store as package thread uses it.
func (s *Store) Threads() thread.Store { return threads{s} }

// Runs returns the store as package run uses it.
func (s *Store) Runs() run.Store { return runs{s} }

// Items returns the store as package store uses it.
func (s *Store) Items() store.Backend { return items{s} }

// Saver returns a saver for graphs that run in this process without a server: pregel.WithThread takes it. The checkpoints of a thread are there for
// later runs, of other processes too; a server on the same folder answers 404 until a client creates the thread by its ID.
func (s *Store) Saver() graph.Saver { return saver.New(s.Threads(), nil, nil) }

// Upstream returns the store as package proxy/record uses it: threads of another server, with
// transcripts and without checkpoints.
func (s *Store) Upstream() record.Store { return upstream{s, relational.NewUpstream(database{s})} }

type (
	assistants struct{ *Store }
	threads    struct{ *Store }
	runs       struct{ *Store }
	items      struct{ *Store }
	upstream   struct {
		*Store
		relational.Upstream
	}
)

// Write also marks the transaction, so that cached assistants are dropped after its commit.
func (a assistants) Write(ctx context.Context, fn func(assistant.Tx) error) error {
	return a.write(ctx, func(tx *Tx) error {
		tx.assistants = true
		return fn(tx)
	})
}

func (a assistants) Assistants(ctx context.Context, q assistant.Query) ([]*assistant.Assistant, error) {
	return a.ListAssistants(ctx, q)
}

func (t threads) Write(ctx context.Context, fn func(thread.Tx) error) error {
	return t.write(ctx, func(tx *Tx) error { return fn(tx) })
}

func (t threads) Threads(ctx context.Context, q thread.Query) ([]*thread.Thread, error) {
	return t.SearchThreads(ctx, q)
}

// Scan runs fn within the limits of searches that no index answers.
func (t threads) Scan(ctx context.Context, hint string, fn func(context.Context) error) error {
	return t.scans.Do(ctx, hint, fn)
}

func (r runs) Write(ctx context.Context, fn func(run.Tx) error) error {
	return r.write(ctx, func(tx *Tx) error { return fn(tx) })
}

func (r runs) Runs(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error) {
	return r.ListRuns(ctx, t, q)
}

func (i items) Items(ctx context.Context, q store.Search) ([]*store.Item, error) {
	return i.SearchItems(ctx, q)
}

// Record implements record.Store.
func (u upstream) Record(ctx context.Context, fn func(record.Tx) error) error {
	return u.write(ctx, func(tx *Tx) error { return fn(tx) })
}

// Backfill implements eventstore.Archive.
func (s *Store) Backfill(ctx context.Context, fn func(eventstore.BackfillTx) error) error {
	return s.write(ctx, func(tx *Tx) error { return fn(tx) })
}

var (
	// The compiler checks that no service misses a method.
	_ assistant.Tx = (*Tx)(nil)
	_ thread.Tx    = (*Tx)(nil)
	_ run.Tx       = (*Tx)(nil)

	_ thread.Store            = threads{}
	_ store.Backend           = items{}
	_ checkpointer.HeadReader = (*Store)(nil)
	_ eventstore.Reader       = (*Store)(nil)
	_ eventstore.Pager        = (*Store)(nil)
	_ eventstore.Archive      = (*Store)(nil)
	_ eventstore.BackfillTx   = (*Tx)(nil)
	_ record.Tx               = (*Tx)(nil)
	_ mirror.Store            = (*Store)(nil)
)
