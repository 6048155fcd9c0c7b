// Package changes reports which threads and runs change, to readers that show lists of them.
//
// Storage adds what a transaction has changed after its commit. A Hub hands it to the readers of this server and, in batches, to the other servers. A
// reader may miss what happens while it is not connected, or while servers do not reach each other: what changed is in the database.
package changes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"understudy/access"
	"understudy/id"
	"understudy/internal/loop"
	"understudy/thread"
)

// Change is a thread that was created, changed or deleted, or with Run one of its runs.
type Change struct {
	Thread id.Thread
	Run    id.Run // "": the thread itself
}

// Batch is what changed since the batch before.
type Batch struct {
	Threads []id.Thread
	Runs    []id.Run
	// All: so much changed that it is not named, or changes may have been missed. The lists are empty then.
	All bool
}

const (
	// maxNamed bounds the changes that a reader, or another server, has not got yet. Beyond it they become All.
	maxNamed = 500
	// Pace is the time between two batches of a reader, in which changes are gathered.
	Pace = 250 * time.Millisecond
	// lookup bounds the search for threads in reach.
	lookup = 5 * time.Second
)

// Rows finds threads, those in reach of the context.
type Rows interface {
	Threads(ctx context.Context, q thread.Query) ([]*thread.Thread, error)
}

// Hub passes changes on. Its methods are safe for concurrent use.
type Hub struct {
	// Rows finds what readers may see. It is set before the first one follows.
	Rows Rows
	log  *slog.Logger

	mu        sync.Mutex
	followers map[*Follower]struct{}
	ended     bool
	out       pending       // for other servers
	send      Send          // nil: there are none
	wake      chan struct{} // capacity 1: out has something
}

// Send sends a batch of changes to the other servers. nil: all may have changed.
type Send func(ctx context.Context, list []Change) error

// NewHub makes a Hub.
func NewHub(log *slog.Logger) *Hub {
	return &Hub{log: log, followers: map[*Follower]struct{}{}, wake: make(chan struct{}, 1)}
}

// pending are changes that wait.
type pending struct {
	named map[Change]struct{}
	all   bool
}

func (p *pending) add(list []Change) {
	if p.all {
		return
	}
	if p.named == nil {
		p.named = map[Change]struct{}{}
	}
	for _, c := range list {
		p.named[c] = struct{}{}
	}
	if list == nil || len(p.named) > maxNamed {
		p.named, p.all = nil, true
	}
}

func (p *pending) take() pending {
	was := *p
	*p = pending{}
	return was
}

func (p *pending) empty() bool { return !p.all && len(p.named) == 0 }

// Add adds what was changed by this server. It does not block.
func (h *Hub) Add(list []Change) { h.add(list, true) }

// Heard adds what another server has reported; nil: all may have changed. It does not block.
func (h *Hub) Heard(list []Change) { h.add(list, false) }

func (h *Hub) add(list []Change, own bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.followers {
		f.pending.add(list)
		loop.Poke(f.wake)
	}
	if own && h.send != nil {
		h.out.add(list)
		loop.Poke(h.wake)
	}
}

// Run sends changes to other servers by send until ctx ends, and then ends all followers. send may be nil: there are none.
func (h *Hub) Run(ctx context.Context, send Send) error {
	h.mu.Lock()
	h.send = send
	h.mu.Unlock()
	defer h.end()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		}
		if !loop.Sleep(ctx, Pace) {
			return nil
		}
		h.mu.Lock()
		out := h.out.take()
		h.mu.Unlock()
		if out.empty() { // the batch before had it
			continue
		}
		var list []Change
		for c := range out.named {
			list = append(list, c)
		}
		err := send(ctx, list)
		if err != nil && !failed && ctx.Err() == nil {
			h.log.WarnContext(ctx, "other servers could not be notified of changes; their studio shows them late", "error", err)
		}
		failed = err != nil
	}
}

func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended, h.send = true, nil
	for f := range h.followers {
		f.ended = true
		loop.Poke(f.wake)
	}
}

// Follow follows what changes from now on, of threads in reach of ctx. The caller closes the follower.
func (h *Hub) Follow(ctx context.Context) (*Follower, error) {
	f := &Follower{hub: h, reach: access.Reach(ctx, access.Threads), wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.ended = h.ended; f.ended {
		loop.Poke(f.wake)
	}
	h.followers[f] = struct{}{}
	return f, nil
}

// Follower is a reader of changes. It is not safe for concurrent use.
type Follower struct {
	hub   *Hub
	reach *access.Filter
	last  time.Time // of the last batch
	wake  chan struct{}

	// Guarded by hub.mu.
	pending pending
	ended   bool
}

// Next waits for changes; io.EOF when the server ends, the cause of ctx when that ends. What it has not returned then, the next call does.
func (f *Follower) Next(ctx context.Context) (Batch, error) {
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return Batch{}, context.Cause(ctx)
		}
		if !loop.Sleep(ctx, time.Until(f.last.Add(Pace))) {
			loop.Poke(f.wake)
			return Batch{}, context.Cause(ctx)
		}
		f.hub.mu.Lock()
		ended, found := f.ended, f.pending.take()
		f.hub.mu.Unlock()
		if !found.empty() {
			batch, err := f.visible(ctx, found)
			if err != nil {
				return Batch{}, err
			}
			if batch.All || len(batch.Threads)+len(batch.Runs) > 0 {
				f.last = time.Now()
				if ended {
					loop.Poke(f.wake)
				}
				return batch, nil
			}
		}
		if ended {
			return Batch{}, io.EOF
		}
	}
}

// visible returns the part of changes that is in reach. Of a thread that is gone nothing shows whether it was.
func (f *Follower) visible(ctx context.Context, p pending) (Batch, error) {
	if p.all {
		return Batch{All: true}, nil
	}
	var within map[id.Thread]bool
	if f.reach != nil {
		var err error
		if within, err = f.within(ctx, p); err != nil {
			return Batch{}, err
		}
	}
	var b Batch
	for c := range p.named {
		switch {
		case within != nil && !within[c.Thread]:
		case c.Run != "":
			b.Runs = append(b.Runs, c.Run)
		default:
			b.Threads = append(b.Threads, c.Thread)
		}
	}
	return b, nil
}

func (f *Follower) within(ctx context.Context, p pending) (map[id.Thread]bool, error) {
	within := map[id.Thread]bool{}
	for c := range p.named {
		within[c.Thread] = false
	}
	ids := make([]id.Thread, 0, len(within))
	for t := range within {
		ids = append(ids, t)
	}
	// A heartbeat that is due must not make the changes disappear.
	limited, cancel := context.WithTimeout(access.Narrow(context.WithoutCancel(ctx), access.Threads, f.reach), lookup)
	defer cancel()
	found, err := f.hub.Rows.Threads(limited, thread.Query{IDs: ids, Limit: len(ids)})
	if err != nil {
		return nil, errors.Join(errors.New("find the threads that changed"), err)
	}
	for _, t := range found {
		within[t.ID] = true
	}
	return within, nil
}

// Close ends following. It may be called more than once.
func (f *Follower) Close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	delete(f.hub.followers, f)
}
