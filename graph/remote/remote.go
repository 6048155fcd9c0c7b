package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Options locate an upstream graph.
type Options struct {
	ID      string            // of the graph here
	URL     string            // of the server with its mount prefix; may contain user and password
	GraphID string            // of the graph upstream; "": as here
	Headers map[string]string // sent with every request
	Logger  *slog.Logger      // nil: nothing is logged
	// Transport sends the requests; nil: one shared by all graphs.
	Transport http.RoundTripper
}

// Graph is a graph of an upstream LangGraph Server.
type Graph struct {
	c     *client
	id    string
	graph string // its id there
	log   *slog.Logger

	mu        sync.Mutex
	assistant string // id of the upstream's default assistant for the graph; "" until requested
}

var (
	_ graph.Graph     = (*Graph)(nil)
	_ graph.Elsewhere = (*Graph)(nil)
)

// Elsewhere implements graph.Elsewhere.
func (g *Graph) Elsewhere() {}

// New returns a Graph without connecting: an unavailable server is reported on use.
func New(o Options) (*Graph, error) {
	c, err := newClient(&o)
	if err != nil {
		return nil, err
	}
	g := &Graph{c: c, id: o.ID, graph: o.GraphID, log: o.Logger}
	if g.graph == "" {
		g.graph = o.ID
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	return g, nil
}

// ownerKey marks threads created for a graph of this server, so that no other thread is ever deleted upstream.
const ownerKey = "understudy_graph"

// thread is a thread as the upstream shows it.
type thread struct {
	Metadata   json.RawMessage `json:"metadata"`
	Values     json.RawMessage `json:"values"`
	Error      json.RawMessage `json:"error"`
	Interrupts json.RawMessage `json:"interrupts"`
}

// used reports whether a thread may have checkpoints.
func (t *thread) used() bool {
	return len(t.Values) > 0 && string(t.Values) != "null" || t.Error != nil || t.Interrupts != nil
}

// ensure creates the upstream thread if it does not exist.
func (g *Graph) ensure(ctx context.Context, t id.Thread) (*thread, error) {
	var row thread
	err := g.c.post(ctx, "/threads", map[string]any{
		"thread_id": t, "if_exists": "do_nothing", "metadata": map[string]any{"graph_id": g.graph, ownerKey: g.id},
	}, &row)
	return &row, err
}

// begin sets the upstream thread to its start: the head here, or the named checkpoint. It returns the checkpoint to request from the upstream,
// "" when that is its head anyway, and the one that the call builds on.
func (g *Graph) begin(ctx context.Context, saver graph.Saver, at checkpointer.Key) (explicit, base id.Checkpoint, err error) {
	row, err := g.ensure(ctx, at.Thread)
	if err != nil {
		return "", "", err
	}
	if saver == nil {
		return at.ID, at.ID, nil
	}
	here, err := saver.Load(ctx, checkpointer.Key{Thread: at.Thread})
	if err != nil {
		return "", "", err
	}
	var there snapshot
	if here != nil || row.used() {
		if err := g.c.get(ctx, threadPath(at.Thread)+"/state", &there); err != nil {
			return "", "", err
		}
	}
	if here == nil {
		if at.ID != "" { // unknown here: the upstream decides what it means
			return at.ID, "", nil
		}
		if there.Checkpoint.ID == "" {
			return "", "", nil
		}
		// The thread, or all of its runs, were deleted here.
		if jsonobj.Of(row.Metadata).Text(ownerKey) != g.id {
			return "", "", g.c.failed(0, nil, "thread %s has a history there that is not here", at.Thread)
		}
		if err := g.drop(ctx, at.Thread); err != nil {
			return "", "", err
		}
		_, err := g.ensure(ctx, at.Thread)
		return "", "", err
	}
	base = here.ID
	if at.NS != "" {
		return at.ID, base, nil
	}
	if at.ID != "" {
		base = at.ID
	}
	if base != there.Checkpoint.ID {
		s, err := g.c.record(ctx, at.Thread, "", base)
		if err != nil {
			return "", "", err
		}
		if !s.exists() {
			if at.ID != "" {
				// For a checkpoint that never existed, the client gets the upstream's answer.
				if t, err := saver.Load(ctx, at); err != nil || t == nil {
					return at.ID, "", err
				}
			}
			return "", "", g.c.lacks(at.Thread, base)
		}
		return base, base, nil
	}
	return at.ID, base, nil
}

// drop deletes the upstream thread.
func (g *Graph) drop(ctx context.Context, t id.Thread) error {
	err := g.c.call(ctx, g.c.again, http.MethodDelete, threadPath(t), nil, nil)
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// Explain requests a checkpoint from the upstream.
func (g *Graph) Explain(ctx context.Context, cfg graph.Config, at checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	if at.Thread == "" {
		at.Thread = cfg.Thread
	}
	var s *snapshot
	var err error
	if live {
		s, err = g.c.head(ctx, at.Thread, at.NS)
	} else {
		s, err = g.c.record(ctx, at.Thread, at.NS, at.ID)
	}
	if err != nil {
		return checkpointer.Explanation{}, asFault(err)
	}
	if !s.exists() || s.Checkpoint.ID != at.ID && at.ID != "" {
		return checkpointer.Explanation{}, asFault(g.c.lacks(at.Thread, at.ID))
	}
	m := g.newMirror(&cfg, "")
	m.thread = at.Thread
	p := &checkpointer.Put{}
	p.Key = s.key(at.Thread)
	e := checkpointer.Explanation{Values: s.Values, Next: s.Next, Tasks: s.description()}
	if e.Shape, e.ShapeJSON, err = m.content(ctx, s, p); err != nil {
		return e, fmt.Errorf("explain checkpoint %s of thread %s: %w", at.ID, at.Thread, err)
	}
	return e, nil
}

// Update makes the upstream write state, and mirrors the resulting checkpoints. As in LangGraph Server, several updates in one step, and
// commands, can only be written to a thread without state.
func (g *Graph) Update(ctx context.Context, cfg graph.Config, at checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	if at.Thread == "" {
		at.Thread = cfg.Thread
	}
	cfg.Thread = at.Thread
	key, err := g.update(ctx, cfg, at, steps)
	if err != nil {
		return key, asFault(err)
	}
	return key, nil
}

func (g *Graph) update(ctx context.Context, cfg graph.Config, at checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	explicit, base, err := g.begin(ctx, cfg.Saver, at)
	if err != nil {
		return checkpointer.Key{}, err
	}
	var was snapshot
	if base != "" {
		if err := g.c.get(ctx, threadPath(at.Thread)+"/state", &was); err != nil {
			return checkpointer.Key{}, err
		}
	}
	last, err := g.write(ctx, at, explicit, base, cfg.CheckpointMap, steps)
	if err != nil {
		return checkpointer.Key{}, err
	}
	m := g.newMirror(&cfg, "")
	// The upstream's writes must be mirrored even if the client has left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	isNew := func(s *snapshot) bool { return s.Checkpoint.NS != "" || s.Checkpoint.ID > was.Checkpoint.ID }
	if err := m.whole(ctx, span{expect: len(steps), new: isNew, base: base}); err != nil {
		return checkpointer.Key{}, err
	}
	if last.ID == "" {
		head, err := g.c.head(ctx, at.Thread, "")
		if err != nil {
			return checkpointer.Key{}, err
		}
		last = head.Checkpoint
	}
	return checkpointer.Key{Thread: at.Thread, NS: last.NS, ID: last.ID}, nil
}

// write sends updates. It returns the place of the last checkpoint, if the answer contains it.
func (g *Graph) write(
	ctx context.Context, at checkpointer.Key, explicit, base id.Checkpoint, mapping json.RawMessage, steps [][]graph.StateUpdate,
) (last place, err error) {
	plain := true
	for _, step := range steps {
		plain = plain && len(step) == 1 && step[0].Command == nil
	}
	if !plain {
		return g.supersteps(ctx, at, base, steps)
	}
	for i, step := range steps {
		u := step[0]
		body := jsonobj.Of(nil)
		values := u.Values
		if values == nil {
			values = json.RawMessage("null")
		}
		body.Set("values", values)
		if u.AsNode != "" {
			body.SetText("as_node", u.AsNode)
		}
		if i == 0 && (explicit != "" || at.NS != "") {
			where := jsonobj.Of(nil)
			where.SetText("thread_id", string(at.Thread))
			where.SetText("checkpoint_ns", at.NS)
			if explicit != "" {
				where.SetText("checkpoint_id", string(explicit))
			}
			if len(mapping) > 0 {
				where.Set("checkpoint_map", mapping)
			}
			body.Set("checkpoint", where.JSON())
		}
		var answer struct {
			Checkpoint place `json:"checkpoint"`
		}
		if err := g.c.call(ctx, g.c.unsent, http.MethodPost, threadPath(at.Thread)+"/state", body.JSON(), &answer); err != nil {
			return place{}, err
		}
		last = answer.Checkpoint
	}
	return last, nil
}

// supersteps writes to an empty thread: LangGraph Server accepts such updates only when it creates one.
func (g *Graph) supersteps(ctx context.Context, at checkpointer.Key, base id.Checkpoint, steps [][]graph.StateUpdate) (place, error) {
	if base != "" {
		return place{}, fault.New(fault.Invalid, "updates of several nodes in one step, and commands, need a new thread: the graph runs on an upstream server")
	}
	type update struct {
		Values  json.RawMessage `json:"values,omitempty"`
		Command json.RawMessage `json:"command,omitempty"`
		AsNode  string          `json:"as_node"`
	}
	type superstep struct {
		Updates []update `json:"updates"`
	}
	all := make([]superstep, len(steps))
	for i, step := range steps {
		for _, u := range step {
			all[i].Updates = append(all[i].Updates, update{u.Values, u.Command, u.AsNode})
		}
	}
	if err := g.drop(ctx, at.Thread); err != nil {
		return place{}, err
	}
	body, err := json.Marshal(map[string]any{
		"thread_id": at.Thread, "if_exists": "raise", "metadata": map[string]any{"graph_id": g.graph, ownerKey: g.id}, "supersteps": all,
	})
	if err != nil {
		return place{}, fmt.Errorf("updates of thread %s: %w", at.Thread, err)
	}
	return place{}, g.c.call(ctx, g.c.unsent, http.MethodPost, "/threads", body, nil)
}

// Describe requests the description of the graph from the upstream.
func (g *Graph) Describe(ctx context.Context, _ graph.Config, what graph.DescribeWhat) (json.RawMessage, error) {
	a, err := g.defaultAssistant(ctx)
	if err != nil {
		return nil, asFault(err)
	}
	path := "/assistants/" + a
	switch what.Kind {
	case "graph":
		path += "/graph"
		switch {
		case what.XRay < 0:
			path += "?xray=true"
		case what.XRay > 0:
			path += "?xray=" + strconv.Itoa(what.XRay)
		}
	case "schemas":
		path += "/schemas"
	case "subgraphs":
		path += "/subgraphs"
		if what.Namespace != "" {
			path += "/" + url.PathEscape(what.Namespace)
		}
		if what.Recurse {
			path += "?recurse=true"
		}
	case "nodes":
		path = "/understudy" + path + "/nodes"
	default:
		return nil, fault.Newf(fault.Invalid, "unknown description %q", what.Kind)
	}
	var out json.RawMessage
	if err := g.c.get(ctx, path, &out); err != nil {
		if what.Kind == "nodes" && fault.Is(asFault(err), fault.NotFound) { // LangGraph Server has no such route
			return json.RawMessage(`{"nodes":[]}`), nil
		}
		return nil, asFault(err)
	}
	if what.Kind == "schemas" {
		o := jsonobj.Of(out)
		o.Delete("graph_id")
		out = o.JSON()
	}
	return out, nil
}

// defaultAssistant returns the id of the assistant that the upstream created for the graph.
func (g *Graph) defaultAssistant(ctx context.Context) (string, error) {
	g.mu.Lock()
	known := g.assistant
	g.mu.Unlock()
	if known != "" {
		return known, nil
	}
	var found []struct {
		ID string `json:"assistant_id"`
	}
	err := g.c.post(ctx, "/assistants/search", map[string]any{"graph_id": g.graph, "metadata": map[string]any{"created_by": "system"}, "limit": 1}, &found)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", g.c.failed(http.StatusNotFound, nil, "the upstream server has no graph %q", g.graph)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.assistant = found[0].ID
	return g.assistant, nil
}

// digest returns a short digest for comparison.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
