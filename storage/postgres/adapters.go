package postgres

import (
	"context"

	"understudy/assistant"
	"understudy/eventstore/mirror"
	"understudy/id"
	"understudy/run"
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

type (
	assistants struct{ *Store }
	threads    struct{ *Store }
	runs       struct{ *Store }
	items      struct{ *Store }
)

func (a assistants) Write(ctx context.Context, fn func(assistant.Tx) error) error {
	return a.write(ctx, func(tx *Tx) error {
		tx.exclusive = true
		return fn(tx)
	})
}

func (a assistants) Assistants(ctx context.Context, q assistant.Query) ([]*assistant.Assistant, error) {
	return a.listAssistants(ctx, q)
}

func (t threads) Write(ctx context.Context, fn func(thread.Tx) error) error {
	return t.write(ctx, func(tx *Tx) error { return fn(tx) })
}

func (t threads) Threads(ctx context.Context, q thread.Query) ([]*thread.Thread, error) {
	return t.listThreads(ctx, q)
}

func (t threads) Scan(ctx context.Context, hint string, fn func(context.Context) error) error {
	return t.scans.Do(ctx, hint, fn)
}

func (r runs) Write(ctx context.Context, fn func(run.Tx) error) error {
	return r.write(ctx, func(tx *Tx) error { return fn(tx) })
}

func (r runs) Runs(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error) {
	return r.listRuns(ctx, t, q)
}

func (i items) Items(ctx context.Context, q store.Search) ([]*store.Item, error) {
	return i.SearchItems(ctx, q)
}

var (
	_ assistant.Tx = (*Tx)(nil)
	_ thread.Tx    = (*Tx)(nil)
	_ run.Tx       = (*Tx)(nil)

	_ store.Backend = items{}
	_ mirror.Store  = (*Store)(nil)
)
