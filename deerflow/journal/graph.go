package journal

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/deerflow/changes"
	"understudy/graph"
	"understudy/internal/names"
)

// Graph is an agent whose runs are journaled.
type Graph struct {
	graph.Graph
	// Dir returns the folder of a thread.
	Dir func(user, thread string) string
}

// Of journals the runs of a graph. Graphs on other servers have no files here, and are returned as they are.
func Of(g graph.Graph, dir func(user, thread string) string) graph.Graph {
	if _, elsewhere := g.(graph.Elsewhere); elsewhere {
		return g
	}
	return &Graph{g, dir}
}

// Undelivered is the type of the failure of a run that produced files for the user and showed none of them.
const Undelivered = "ArtifactDeliveryError"

// undelivered is the failure of a run that left files in outputs. DeerFlow's clients know the text.
func undelivered(files []string) *graph.Failure {
	const most = 5
	return &graph.Failure{
		Type: Undelivered, Message: "Artifact delivery incomplete: no produced output artifact was presented",
		Fix: "the agent has to show what it leaves in outputs with present_files, or write to workspace; it left " + names.Some(files, most),
	}
}

// watched are the stream modes that the journal reads.
var watched = []string{"custom", "updates"}

// Stream implements graph.Graph. What ends well fails when files in outputs were produced and none of them was presented.
func (g *Graph) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	if inv.Noted == nil { // a run without a thread leaves nothing
		return g.Graph.Stream(ctx, inv)
	}
	return func(yield func(graph.Event, error) bool) {
		log := inv.Log
		if log == nil {
			log = slog.Default()
		}
		asked := inv.Modes
		inv.Modes = slices.Clone(asked)
		for _, mode := range watched {
			if !slices.Contains(asked, mode) {
				inv.Modes = append(inv.Modes, mode)
			}
		}
		r := &record{note: inv.Noted}
		dir := filepath.Join(g.Dir(User(inv.Config.Config, inv.Context), string(inv.Thread)), "user-data")
		before, err := changes.Take(ctx, dir, changes.Defaults)
		if err != nil && ctx.Err() == nil {
			log.Warn("files of the thread cannot be read; what the run changes is not recorded", "error", err)
		}
		var failed error
		left := false
		for e, err := range g.Graph.Stream(ctx, inv) {
			if err != nil {
				failed = err
				break
			}
			if e.NS == "" && slices.Contains(watched, e.Name) {
				r.read(e)
				if !slices.Contains(asked, e.Name) {
					continue
				}
			}
			if !yield(e, nil) {
				left = true
				break
			}
		}
		over := !errors.Is(context.Cause(ctx), graph.ErrHandedOver) && !errors.Is(failed, graph.ErrReloading) && !errors.Is(failed, graph.ErrElsewhere) && !errors.Is(failed, graph.ErrWorkerDied)
		if before != nil && over {
			if err := r.compare(context.WithoutCancel(ctx), dir, before); err != nil {
				log.Warn("files of the thread cannot be read; what the run changed is not recorded", "error", err)
			}
		}
		if over {
			r.end()
		}
		switch {
		case left:
		case failed != nil:
			yield(graph.Event{}, failed)
		case ctx.Err() == nil && !r.interrupted && r.undelivered():
			yield(graph.Event{}, undelivered(r.produced))
		}
	}
}

// User returns whose run it is with this configuration and context: the server's word, else what the Gateway wrote into the context.
func User(config, values json.RawMessage) string {
	if a := access.OfRun(config); a != nil {
		return a.Identity
	}
	for _, of := range []json.RawMessage{values, json.RawMessage(gjson.GetBytes(config, "configurable").Raw)} {
		if user := gjson.GetBytes(of, "user_id").String(); user != "" {
			return user
		}
	}
	return "default"
}
