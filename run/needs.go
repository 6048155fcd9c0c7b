package run

import (
	"context"
	"encoding/json"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
)

// Graphs are the graphs that runs execute.
type Graphs interface {
	Graph(id string) (graph.Graph, bool)
	Names() []string // sorted
}

// Snapshots reads what the head of a thread holds.
type Snapshots interface {
	Values(ctx context.Context, k checkpointer.Key) (json.RawMessage, error)
	Head(ctx context.Context, t id.Thread) (checkpointer.HeadInfo, error)
	// HeadOf is Head of a checkpoint that was loaded: checkpointer.ErrUndescribed when only Head, which asks the graph, can find out.
	HeadOf(t *checkpointer.Tuple) (checkpointer.HeadInfo, error)
}

// Wire encodes runs for webhooks, and decodes the payloads of crons.
type Wire interface {
	// Run is the run object of the API.
	Run(r *Run) json.RawMessage
	// Request decodes and checks the payload of a cron as the request for a run that it is.
	Request(payload json.RawMessage, stateless bool) (Request, error)
}
