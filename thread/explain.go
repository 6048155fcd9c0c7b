package thread

import (
	"context"

	"understudy/checkpointer"
	"understudy/checkpointer/saver"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Explainer asks the graph of a thread for facts that stored rows do not contain.
type Explainer struct {
	Store  Store
	Graphs Graphs
	Items  graph.Store
}

var _ checkpointer.Explainer = Explainer{}

// Explain calls the graph that wrote the checkpoint, named in its metadata or else in the thread's.
func (e Explainer) Explain(ctx context.Context, k checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	row, err := e.Store.Thread(ctx, k.Thread)
	if err != nil {
		return checkpointer.Explanation{}, err
	}
	name := jsonobj.Of(row.Metadata).Text("graph_id")
	if t, err := e.Store.LoadCheckpoint(ctx, k); err == nil && t != nil {
		if own := jsonobj.Of(t.Metadata).Text("graph_id"); own != "" {
			name = own
		}
	}
	g, ok := e.Graphs.Graph(name)
	if !ok {
		return checkpointer.Explanation{}, fault.Newf(fault.NotFound, "Graph '%s' not found", name)
	}
	config, factory := readConfig(row, name, nil)
	return g.Explain(ctx, graph.Config{
		Thread: k.Thread, Config: config, Factory: factory, Saver: saver.New(e.Store, nil, nil), Store: e.Items,
	}, k, live)
}
