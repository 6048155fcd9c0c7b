package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"understudy/access"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/server"
	"understudy/thread"
)

// threads guards server.Threads.
type threads struct {
	*Guard
	inner server.Threads
}

var _ server.Threads = (*threads)(nil)

// Create asks threads.create. The filter of the answer matters for an id that exists: one that is not shown is taken.
func (g *threads) Create(ctx context.Context, n thread.New) (*thread.View, error) {
	chosen := n.ID != ""
	if !chosen {
		n.ID = newID(ctx, access.Threads, "create", id.NewThread)
	}
	narrow, v, err := g.ask(ctx, access.Threads, "create", threadCreated(n))
	if err != nil {
		return nil, err
	}
	n.Metadata = metadataOf(v)
	taken := fault.Newf(fault.Conflict, "Thread with ID %s already exists", n.ID)
	if chosen && g.hidden(narrow, n.ID) {
		return nil, taken
	}
	made, err := g.inner.Create(ctx, n)
	if err != nil {
		return nil, err
	}
	// It may have been made by another client in between.
	if f := access.Reach(narrow, access.Threads); !f.Match(made.Metadata) && !bytes.Equal(orEmpty(made.Metadata), orEmpty(n.Metadata)) {
		return nil, taken
	}
	return made, nil
}

// threadCreated is what handlers see of a new thread.
func threadCreated(n thread.New) *jsonobj.Object {
	return object("thread_id", jsonobj.Quote(string(n.ID)), "metadata", orEmpty(n.Metadata), "if_exists", named(n.IfExists))
}

func (g *threads) Get(ctx context.Context, t id.Thread) (*thread.View, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	return g.inner.Get(ctx, t)
}

func (g *threads) Patch(ctx context.Context, t id.Thread, p thread.Patch) (*thread.View, error) {
	ctx, v, err := g.ask(ctx, access.Threads, "update", threadPatched(t, p))
	if err != nil {
		return nil, err
	}
	if m := metadataOf(v); m != nil {
		p.Metadata = m
	}
	return g.inner.Patch(ctx, t, p)
}

// threadPatched is what handlers see of a changed thread.
func threadPatched(t id.Thread, p thread.Patch) *jsonobj.Object {
	return object("thread_id", jsonobj.Quote(string(t)), "metadata", orEmpty(p.Metadata))
}

func (g *threads) Delete(ctx context.Context, t id.Thread) error {
	ctx, err := g.on(ctx, access.Threads, "delete", "thread_id", string(t))
	if err != nil {
		return err
	}
	return g.inner.Delete(ctx, t)
}

func (g *threads) search(ctx context.Context, q thread.Search) (context.Context, thread.Search, error) {
	ctx, v, err := g.change(ctx, access.Threads, "search", threadsSearched(q))
	if err == nil { // what a handler writes there it means as a filter as well
		err = errors.Join(v.object(&q.Metadata, "metadata"), v.object(&q.Values, "values"))
	}
	if err != nil {
		return nil, q, err
	}
	return ctx, q, nil
}

// threadsSearched is what handlers see of a search.
func threadsSearched(q thread.Search) *jsonobj.Object {
	return object(
		"metadata", orEmpty(q.Metadata), "values", orEmpty(q.Values), "status", named(string(q.Status)), "limit", encoded(q.Limit), "offset", encoded(q.Offset))
}

func (g *threads) Search(ctx context.Context, q thread.Search) ([]*thread.View, bool, error) {
	ctx, q, err := g.search(ctx, q)
	if err != nil {
		return nil, false, err
	}
	return g.inner.Search(ctx, q)
}

// Show completes a thread that Search has returned.
func (g *threads) Show(ctx context.Context, q thread.Search, v *thread.View) error {
	return g.inner.Show(ctx, q, v)
}

func (g *threads) Count(ctx context.Context, q thread.Search) (int, error) {
	ctx, q, err := g.search(ctx, q)
	if err != nil {
		return 0, err
	}
	return g.inner.Count(ctx, q)
}

// Copy is copied for all of a thread, ForkAt up to an event.
func (g *threads) Copy(ctx context.Context, t id.Thread) (*thread.View, error) {
	return g.copied(ctx, t, func(ctx context.Context) (*thread.View, error) { return g.inner.Copy(ctx, t) })
}

func (g *threads) ForkAt(ctx context.Context, t id.Thread, at thread.Fork) (*thread.View, error) {
	return g.copied(ctx, t, func(ctx context.Context) (*thread.View, error) { return g.inner.ForkAt(ctx, t, at) })
}

// copied asks threads.read for the source and threads.create for the copy, which belongs to who made it.
func (g *threads) copied(ctx context.Context, t id.Thread, make func(ctx context.Context) (*thread.View, error)) (*thread.View, error) {
	from, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	row, err := g.Rows.Thread(from, t)
	if fault.Is(err, fault.NotFound) {
		return make(from) // it says so
	} else if err != nil {
		return nil, err
	}
	_, v, err := g.ask(ctx, access.Threads, "create", object("thread_id", jsonobj.Quote(string(t)), "metadata", orEmpty(row.Metadata)))
	if err != nil {
		return nil, err
	}
	made, err := make(from)
	if err != nil {
		return nil, err
	}
	if m := metadataOf(v); m != nil && !bytes.Equal(m, orEmpty(row.Metadata)) {
		return g.inner.Patch(access.Everything(ctx), made.ID, thread.Patch{Metadata: m})
	}
	return made, nil
}

func (g *threads) Usage(ctx context.Context, t id.Thread) (thread.Usage, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return thread.Usage{}, err
	}
	return g.inner.Usage(ctx, t)
}

func (g *threads) Tree(ctx context.Context, t id.Thread, before id.Checkpoint, limit int) ([]thread.Step, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	return g.inner.Tree(ctx, t, before, limit)
}

// Prune asks for all threads at once, and prunes none unless all may be.
func (g *threads) Prune(ctx context.Context, ids []id.Thread, strategy thread.Strategy, where *thread.Condition) (thread.Pruned, error) {
	ctx, err := g.about(ctx, access.Threads, "delete", func() json.RawMessage { return threadsPruned(ids) })
	if err != nil {
		return thread.Pruned{}, err
	}
	for _, t := range ids {
		if _, err := g.Rows.Thread(ctx, t); fault.Is(err, fault.NotFound) {
			return thread.Pruned{}, fault.Newf(fault.NotFound, "Thread with ID %s not found", t)
		} else if err != nil {
			return thread.Pruned{}, err
		}
	}
	return g.inner.Prune(ctx, ids, strategy, where)
}

// threadsPruned is what handlers see of a prune.
func threadsPruned(ids []id.Thread) json.RawMessage { return object("thread_ids", encoded(ids)).JSON() }

func (g *threads) State(ctx context.Context, at checkpointer.Key, subgraphs bool) (*checkpointer.Snapshot, error) {
	ctx, err := g.read(ctx, at.Thread)
	if err != nil {
		return nil, err
	}
	return g.inner.State(ctx, at, subgraphs)
}

func (g *threads) ReadHistory(ctx context.Context, q thread.HistoryQuery) (thread.Entries, error) {
	ctx, err := g.read(ctx, q.Thread)
	if err != nil {
		return nil, err
	}
	return g.inner.ReadHistory(ctx, q)
}

func (g *threads) UpdateState(ctx context.Context, at thread.Place, steps [][]graph.StateUpdate) (thread.Place, error) {
	ctx, err := g.on(ctx, access.Threads, "update", "thread_id", string(at.Thread))
	if err == nil {
		ctx, err = g.read(ctx, at.Thread)
	}
	if err != nil {
		return thread.Place{}, err
	}
	return g.inner.UpdateState(ctx, at, steps)
}

// events guards server.Events.
type events struct {
	*Guard
	inner server.Events
}

var _ server.Events = (*events)(nil)

func (g *events) Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	ctx, err := g.shown(ctx, q.Thread)
	if err != nil {
		return nil, err
	}
	return g.inner.Messages(ctx, q)
}

func (g *events) Events(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	ctx, err := g.shown(ctx, q.Thread)
	if err != nil {
		return nil, err
	}
	return g.inner.Events(ctx, q)
}

// shown is read for a service that does not look at the row of the thread: a hidden one is not found.
func (g *Guard) shown(ctx context.Context, t id.Thread) (context.Context, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	if g.hidden(ctx, t) {
		return nil, fault.Newf(fault.NotFound, "Thread with ID %s not found", t)
	}
	return ctx, nil
}
