package postgres

import (
	"context"
	"fmt"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/id"
	"understudy/proxy/record"
	"understudy/run"
	"understudy/storage/internal/relational"
	"understudy/store"
	"understudy/thread"
)

// Each domain package declares a Write of its own, whose function takes its own Tx. One method cannot have four types: the adapters
// below are the same store, seen by each.

// Assistants is the store as package assistant wants it.
func (s *Store) Assistants() assistant.Store { return assistants{s} }

// Threads is the store as package thread wants it.
func (s *Store) Threads() thread.Store { return threads{s} }

// Runs is the store as package run wants it.
func (s *Store) Runs() run.Store { return runs{s} }

// Items is the store as package store wants it.
func (s *Store) Items() store.Backend { return items{s} }

// Upstream is the store as package record wants it: threads of another server, with their transcripts and without their checkpoints. The
// store is to be opened with a schema of its own (Options.Schema) for each upstream.
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

func (a assistants) Write(ctx context.Context, fn func(assistant.Tx) error) error {
	return a.write(ctx, func(tx *Tx) error {
		tx.exclusive = true
		return fn(tx)
	})
}

func (a assistants) Assistants(ctx context.Context, q assistant.Query) ([]*assistant.Assistant, error) {
	return a.ListAssistants(ctx, q)
}

func (s threads) Write(ctx context.Context, fn func(thread.Tx) error) error {
	return s.write(ctx, func(tx *Tx) error { return fn(tx) })
}

func (s threads) Threads(ctx context.Context, q thread.Query) ([]*thread.Thread, error) {
	return s.SearchThreads(ctx, q)
}

func (s threads) Scan(ctx context.Context, hint string, fn func(context.Context) error) error {
	return s.scans.Do(ctx, hint, fn)
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

// Record is record.Store.Record. A transaction is alone with its threads.
func (u upstream) Record(ctx context.Context, fn func(record.Tx) error) error {
	return u.write(ctx, func(tx *Tx) error { return fn(upstreamTx{tx}) })
}

// upstreamTx is a transaction on what is recorded of an upstream.
type upstreamTx struct{ *Tx }

// DeleteThread is record.Tx.DeleteThread. Servers, whose threads have none of this, do without.
func (tx upstreamTx) DeleteThread(t id.Thread) error {
	if err := tx.Tx.DeleteThread(t); err != nil {
		return err
	}
	for _, table := range []string{"upstream_checkpoints", "upstream_deleted"} {
		if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = $1", t); err != nil {
			return fmt.Errorf("delete thread %s: %w", t, err)
		}
	}
	return nil
}

// Backfill is eventstore.Archive.Backfill.
func (s *Store) Backfill(ctx context.Context, fn func(eventstore.BackfillTx) error) error {
	return s.write(ctx, func(tx *Tx) error { return fn(tx) })
}

var (
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
	_ record.Tx               = upstreamTx{}
	_ mirror.Store            = (*Store)(nil)
)
