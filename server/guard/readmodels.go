package guard

import (
	"context"

	"understudy/access"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/server"
)

// readModels guards server.ReadModels: of one thread as reading it, of all as a search of threads.
type readModels struct {
	*Guard
	inner server.ReadModels
}

func (g *readModels) Branches(ctx context.Context, t, after id.Thread, limit int) (*readmodel.Lineage, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	return g.inner.Branches(ctx, t, after, limit)
}

func (g *readModels) Message(ctx context.Context, t id.Thread, message string) (*readmodel.Message, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	return g.inner.Message(ctx, t, message)
}

func (g *readModels) Recent(ctx context.Context, model string, before readmodel.Place, limit int) ([]readmodel.Row, readmodel.Place, error) {
	ctx, _, err := g.ask(ctx, access.Threads, "search", anyThreads())
	if err != nil {
		return nil, readmodel.Place{}, err
	}
	return g.inner.Recent(ctx, model, before, limit)
}
