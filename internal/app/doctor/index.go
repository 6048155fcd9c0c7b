package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"understudy/graph/agent/llm"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
)

// index checks the embedding of store.index, and calls it when models are called.
func (d *doctor) index(ctx context.Context, cfg *config.Config) {
	i := cfg.StoreIndex
	if i == nil {
		return
	}
	name := fmt.Sprintf("semantic search by %s (%d dimensions)", i.Embed, i.Dims)
	if i.IsPython() {
		return // see parts
	}
	e, err := graphs.Embeddings(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		d.say("store", Problem, "store.index: "+err.Error(), "")
		return
	}
	if !d.Models {
		d.say("store", Fine, name, "")
		return
	}
	limit := d.ModelTime
	if limit == 0 {
		limit = modelTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w of %s", errLimit, limit))
	defer cancel()
	began := time.Now()
	vectors, err := e.Embed(ctx, []string{"red"})
	took := time.Since(began).Seconds()
	switch {
	case err != nil:
		cause, next := llm.Diagnose(err)
		d.say("store", Problem, fmt.Sprintf("%s does not answer (%.1f s): %s", i.Embed, took, strings.TrimSpace(cause)), next)
	case len(vectors) != 1 || len(vectors[0]) != i.Dims:
		d.say("store", Problem, fmt.Sprintf("%s has %d dimensions, and dims of store.index is %d", i.Embed, len(vectors[0]), i.Dims), fmt.Sprintf("set dims to %d", len(vectors[0])))
	default:
		d.say("store", Fine, fmt.Sprintf("%s; answers in %.1f s", name, took), "")
	}
}
