package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/sse"
)

const (
	// cancelWait is how long to wait for a cancelled run to end.
	cancelWait = 10 * time.Second
	// rejoins is how often in a row a stream is joined again without receiving anything.
	rejoins = 6
)

// Statuses of a run that is not over.
var under = []string{"pending", "running"}

// run is one execution upstream.
type run struct {
	g   *Graph
	inv *graph.Invocation
	m   *mirror // nil: nothing is kept

	id       string // id upstream; "" until known
	lastID   string // of the last event seen
	failure  *graph.Failure
	rewrite  []pair // names that differ between this server and the upstream
	live     bool   // checkpoints are mirrored as they arrive
	puts     int
	held     held
	tools    map[string][]toolCall // that have begun, by task
	consumer func(graph.Event, error) bool
}

// pair is a text of the upstream, and its replacement.
type pair struct{ theirs, ours []byte }

var errStopped = errors.New("the consumer of the events has left")

// Stream runs the graph upstream.
func (g *Graph) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		r := &run{g: g, inv: &inv, consumer: yield}
		if inv.Saver != nil && !inv.Temporary {
			r.m = g.newMirror(&inv.Config, inv.Run)
			r.live = inv.Durability != "exit"
		}
		err := r.do(ctx)
		if inv.Temporary && !errors.Is(context.Cause(ctx), graph.ErrHandedOver) {
			r.after(ctx, "temporary thread", func(ctx context.Context) error { return g.drop(ctx, inv.Thread) })
		}
		switch {
		case err == nil, errors.Is(err, errStopped):
		case ctx.Err() != nil:
			yield(graph.Event{}, context.Cause(ctx))
		default:
			yield(graph.Event{}, asFailure(err))
		}
	}
}

// after does work that is required after the run, even if its context has ended.
func (r *run) after(ctx context.Context, what string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
	defer cancel()
	if err := do(ctx); err != nil {
		r.g.log.WarnContext(ctx, "upstream cleanup failed", "what", what, "graph", r.g.id, "run_id", r.inv.Run, "thread_id", r.inv.Thread, "error", err)
	}
}

// do starts or joins the run, follows it to the end, and mirrors its checkpoints.
func (r *run) do(ctx context.Context) error {
	base, s, err := r.start(ctx)
	if err == nil {
		err = r.follow(ctx, s)
	}
	if err != nil {
		if !errors.Is(context.Cause(ctx), graph.ErrHandedOver) && (ctx.Err() != nil || errors.Is(err, errStopped) || errors.Is(err, graph.ErrFenced)) {
			r.after(ctx, "run", r.cancel)
		}
		return err
	}
	if r.m != nil {
		isOurs := func(s *snapshot) bool { return s.run() == r.id }
		if err := r.m.whole(ctx, span{expect: r.puts, new: isOurs, base: base}); err != nil {
			return err
		}
	}
	if err := r.release(true); err != nil {
		return err
	}
	if r.failure != nil {
		return r.failure
	}
	return nil
}

// found is a run in the upstream's list.
type found struct {
	ID     string `json:"run_id"`
	Status string `json:"status"`
}

// find returns the upstream run that was started by an earlier attempt, or by a request whose answer was lost.
func (r *run) find(ctx context.Context) (found, error) {
	var list []struct {
		found
		Kwargs struct {
			Config struct {
				Configurable struct {
					Request string `json:"langgraph_request_id"`
				} `json:"configurable"`
			} `json:"config"`
		} `json:"kwargs"`
	}
	err := r.g.c.get(ctx, threadPath(r.inv.Thread)+"/runs?limit=100", &list)
	if isStatus(err, http.StatusNotFound) {
		return found{}, nil
	}
	for _, one := range list {
		if one.Kwargs.Config.Configurable.Request == string(r.inv.Run) {
			return one.found, err
		}
	}
	return found{}, err
}

// start returns the stream of the upstream run: the existing one or a new one.
func (r *run) start(ctx context.Context) (base id.Checkpoint, s *stream, err error) {
	if r.inv.Attempt > 1 {
		f, err := r.find(ctx)
		if err != nil {
			return "", nil, err
		}
		// A run that was stopped is resumed from its last checkpoint.
		if f.ID != "" && f.Status != "interrupted" {
			r.id = f.ID
			return "", nil, nil
		}
	}
	explicit, base, err := r.g.begin(ctx, r.saver(), r.inv.At)
	if err != nil {
		return "", nil, err
	}
	body, err := r.body(explicit)
	if err != nil {
		return "", nil, err
	}
	s, err = r.g.c.open(ctx, r.g.c.unsent, http.MethodPost, threadPath(r.inv.Thread)+"/runs/stream", body, "Content-Type", "application/json", "X-Request-Id", string(r.inv.Run))
	if err == nil {
		r.id = s.run
		return base, s, nil
	}
	if ctx.Err() != nil || !isStatus(err, 0) {
		return "", nil, err
	}
	// It may have arrived although its answer was lost.
	if f, again := r.find(ctx); again == nil && f.ID != "" {
		r.id = f.ID
		return base, nil, nil
	}
	return "", nil, err
}

func (r *run) saver() graph.Saver {
	if r.m == nil {
		return nil
	}
	return r.inv.Saver
}

// follow reads the stream to the end of the run, and joins it again after each interruption.
func (r *run) follow(ctx context.Context, s *stream) error {
	silent := 0
	for {
		var broke error
		if s != nil {
			heard, err := r.read(ctx, s)
			s.close()
			if err != nil && ctx.Err() == nil && !isBroken(err) {
				return err
			}
			if broke = err; heard {
				silent = 0
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.id == "" {
			return r.g.c.failed(0, broke, "the stream of the run ended before it began")
		}
		var now found
		if err := r.g.c.get(ctx, r.path(""), &now); err != nil {
			if isStatus(err, http.StatusNotFound) {
				return r.g.c.failed(http.StatusNotFound, err, "the run was deleted there")
			}
			return err
		}
		if s != nil && broke == nil && !slices.Contains(under, now.Status) {
			return r.ended(ctx, now.Status)
		}
		if silent++; silent > rejoins {
			if !slices.Contains(under, now.Status) {
				return r.ended(ctx, now.Status) // missed events are no longer available
			}
			return r.g.c.failed(0, broke, "the stream of the run broke off again and again: %v", broke)
		}
		if silent > 1 {
			select {
			case <-time.After(time.Duration(silent-1) * 200 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		from := r.lastID
		if from == "" {
			from = "-1"
		}
		var err error
		s, err = r.g.c.open(ctx, r.g.c.again, http.MethodGet, r.path("/stream")+"?"+r.modes(), nil, "Last-Event-ID", from)
		if err != nil {
			return err
		}
	}
}

func (r *run) path(more string) string {
	return threadPath(r.inv.Thread) + "/runs/" + url.PathEscape(r.id) + more
}

// modes returns the query that selects all events of the run.
func (r *run) modes() string {
	modes, _ := json.Marshal(r.streamModes())
	return url.Values{"stream_mode": {string(modes)}}.Encode()
}

// ended returns how the run ended. The end in its stream takes precedence.
func (r *run) ended(ctx context.Context, status string) error {
	if r.failure != nil {
		return nil
	}
	switch status {
	case "success":
	case "interrupted":
		r.failure = &graph.Failure{Type: "UpstreamError", Message: r.g.c.failed(0, nil, "the run was cancelled there").text}
	case "timeout":
		r.failure = &graph.Failure{Type: "UpstreamError", Message: r.g.c.failed(0, nil, "the run took longer than it may there").text}
	default:
		// The stream broke before the end, or was joined too late: an error event is not kept for clients that join later.
		var row struct {
			Error struct{ Error, Message string }
		}
		if err := r.g.c.get(ctx, threadPath(r.inv.Thread), &row); err != nil {
			return err
		}
		r.failure = &graph.Failure{Type: row.Error.Error, Message: row.Error.Message}
		if r.failure.Type == "" {
			r.failure = &graph.Failure{Type: "UpstreamError", Message: r.g.c.failed(0, nil, "the run failed there").text}
		}
	}
	return nil
}

// brokenError is the error of a stream that ended before its run.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

func isBroken(err error) bool {
	var b brokenError
	return errors.As(err, &b)
}

// read yields the events of a stream. It returns nil at the regular end, and a brokenError otherwise.
func (r *run) read(ctx context.Context, s *stream) (heard bool, err error) {
	reader := sse.NewReader(s, maxAnswer)
	for {
		e, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return heard, nil
		case errors.Is(err, sse.ErrTooLong):
			return heard, r.g.c.failed(0, err, "an event is larger than %d MiB", maxAnswer>>20)
		case err != nil:
			return heard, brokenError{err}
		}
		heard = true
		if err := r.event(ctx, &e); err != nil {
			return heard, err
		}
		if e.ID != "" {
			r.lastID = e.ID
		}
		if err := ctx.Err(); err != nil {
			return heard, context.Cause(ctx)
		}
	}
}

// event passes one event on.
func (r *run) event(ctx context.Context, e *sse.Event) error {
	name, ns := sse.SplitName(e.Name)
	switch name {
	case "metadata":
		if own := gjson.GetBytes(e.Data, "run_id").String(); own != "" {
			r.begun(own)
		}
		return nil
	case "error":
		r.failure = &graph.Failure{Type: gjson.GetBytes(e.Data, "error").String(), Message: gjson.GetBytes(e.Data, "message").String()}
		if r.failure.Type == "" {
			r.failure.Type = "UpstreamError"
		}
		return nil
	case "checkpoints":
		if !json.Valid(e.Data) {
			return r.g.c.failed(0, nil, "a checkpoint of the run is no JSON")
		}
		if err := r.checkpoint(ctx, e.Data, ns); err != nil {
			return err
		}
		if !r.wants("checkpoints") {
			return nil
		}
	case "values", "updates", "custom", "tasks", "debug", "events", "messages", "messages/partial", "messages/complete", "messages/metadata":
		if !json.Valid(e.Data) {
			return r.g.c.failed(0, nil, "an event %q of the run is no JSON", name)
		}
		if name == "custom" && ns == "" && r.m != nil {
			if words := graph.SummaryWords(e.Data); words != "" {
				r.m.words = words
			}
		}
	default:
		return nil
	}
	out := graph.Event{Name: name, NS: ns, Data: e.Data}
	if name != "values" && name != "updates" && name != "custom" {
		for _, p := range r.rewrite {
			out.Data = bytes.ReplaceAll(out.Data, p.theirs, p.ours)
		}
	}
	if name == "tasks" && r.wants("tools") {
		return r.holdTask(out)
	}
	return r.hold(out)
}

// checkpoint mirrors the checkpoint of a `checkpoints` event, and releases the values that waited for it.
func (r *run) checkpoint(ctx context.Context, data []byte, ns string) error {
	if !r.live {
		return nil
	}
	s, err := fromEvent(data)
	if err != nil {
		return r.g.c.failed(0, err, "a checkpoint of the run cannot be read: %v", err)
	}
	if s.Checkpoint.ID == "" {
		return nil
	}
	if s.Checkpoint.NS == "" {
		s.Checkpoint.NS = ns
	}
	// A resume repeats the checkpoint that it starts from, with the changes of the resume.
	if _, known := r.m.versions[s.key(r.inv.Thread)]; !known {
		if t, err := r.inv.Saver.Load(ctx, s.key(r.inv.Thread)); err != nil {
			return err
		} else if t == nil {
			saves, err := r.m.put(ctx, nil, s)
			if err == nil {
				err = r.m.save(ctx, saves)
			}
			if err != nil {
				return err
			}
			put := saves[0].Put
			r.m.kept[put.Key] = &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{Data: put.Data, Shape: put.Shape}}
			r.puts++
		}
	}
	return r.settle(s)
}

// begun stores the id of the upstream run, and the names to replace in its events.
func (r *run) begun(own string) {
	r.id = own
	if r.rewrite != nil {
		return
	}
	config := jsonobj.Of(r.inv.Config.Config)
	configurable := jsonobj.Of(config.Get("configurable"))
	add := func(key, theirs, ours string) {
		if theirs == ours || ours == "" {
			return
		}
		quoted := func(v string) []byte { return slices.Concat(jsonobj.Quote(key), []byte(":"), jsonobj.Quote(v)) }
		r.rewrite = append(r.rewrite, pair{quoted(theirs), quoted(ours)})
	}
	add("run_id", own, string(r.inv.Run))
	add("graph_id", r.g.graph, configurable.Text("graph_id"))
	add("assistant_id", string(id.DefaultAssistant(r.g.graph)), configurable.Text("assistant_id"))
	request := configurable.Text("langgraph_request_id")
	add("langgraph_request_id", string(r.inv.Run), request)
	// A run inherits the metadata of its thread.
	owner := slices.Concat(jsonobj.Quote(ownerKey), []byte(":"), jsonobj.Quote(r.g.id))
	r.rewrite = append(r.rewrite, pair{slices.Concat(owner, []byte(",")), nil}, pair{slices.Concat([]byte(","), owner), nil})
}

// cancel stops the upstream run and waits for it.
func (r *run) cancel(ctx context.Context) error {
	if r.id == "" {
		f, err := r.find(ctx)
		if err != nil || f.ID == "" {
			return err
		}
		r.id = f.ID
	}
	err := r.g.c.call(ctx, r.g.c.again, http.MethodPost, r.path("/cancel?wait=1&action=interrupt"), nil, nil)
	if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusConflict) {
		return nil // it is over
	}
	return err
}
