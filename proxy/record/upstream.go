package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tidwall/gjson"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonscan"
	"understudy/proxy"
)

// Refused is the upstream's own refusal of a request, which becomes the answer to the client.
type Refused struct {
	Status int
	Header http.Header
	Body   []byte
}

func (e *Refused) Error() string { return fmt.Sprintf("upstream answered %d", e.Status) }

// Answer returns the upstream's answer.
func (e *Refused) Answer() (status int, header http.Header, body []byte) {
	return e.Status, e.Header, e.Body
}

// errOdd: the upstream's answer violates its API.
var errOdd = errors.New("invalid response from the upstream")

// get makes a request and returns a successful answer as valid JSON; else a *Refused or another error. It waits no longer than a reader
// would, so that a hanging upstream does not block the recording of other threads.
func (r *Recorder) get(ctx context.Context, c *proxy.Call, method, path string, body []byte) ([]byte, error) {
	asking, cancel := context.WithTimeoutCause(ctx, r.wait, errSlow)
	defer cancel()
	status, header, answer, err := r.ask(asking, c.Header, method, path, body)
	switch {
	case err != nil && asking.Err() != nil && ctx.Err() == nil:
		return nil, fault.Wrap(fault.Upstream, "The upstream did not respond in time", fmt.Errorf("%s %s: %w", method, path, err))
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s %s: %w", method, path, &Refused{status, header, answer})
	case !jsonscan.Valid(answer):
		return nil, fmt.Errorf("%s %s: %w", method, path, errOdd)
	}
	return answer, nil
}

// refused reports whether the upstream refused the request, rather than failed.
func refused(err error) bool {
	var no *Refused
	return errors.As(err, &no) && no.Status >= 400 && no.Status < 500
}

// threadPath is the path of a thread.
func threadPath(t id.Thread) string { return "/threads/" + url.PathEscape(string(t)) }

// row identifies a thread by its `created_at`.
type row struct {
	created time.Time
	graph   string
}

// rowOf reads the identity of a thread object; ok is false when there is none.
func rowOf(object []byte) (out row, ok bool) {
	at, err := time.Parse(time.RFC3339Nano, jsonscan.Text(object, "created_at"))
	out.created = at.UTC().Truncate(time.Microsecond)
	out.graph = jsonscan.Text(jsonscan.Raw(object, "metadata"), "graph_id")
	return out, err == nil
}

// thread reads a thread from the upstream.
func (r *Recorder) thread(ctx context.Context, c *proxy.Call, t id.Thread) (row, error) {
	answer, err := r.get(ctx, c, http.MethodGet, threadPath(t), nil)
	if err != nil {
		return row{}, err
	}
	out, ok := rowOf(answer)
	if !ok {
		return row{}, fmt.Errorf("thread %s: %w", t, errOdd)
	}
	return out, nil
}

// state reads the state of a thread from the upstream: the live one, or that of a checkpoint.
func (r *Recorder) state(ctx context.Context, c *proxy.Call, t id.Thread, at id.Checkpoint) (*view, error) {
	path := threadPath(t) + "/state"
	if at != "" {
		path += "/" + string(at)
	}
	answer, err := r.get(ctx, c, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	return look(answer), nil
}

// history reads a page of checkpoints from the upstream, newest first, older than before; "": from the newest.
func (r *Recorder) history(ctx context.Context, c *proxy.Call, t id.Thread, before id.Checkpoint, limit int) (page []json.RawMessage, size int, err error) {
	type configurable struct {
		Checkpoint id.Checkpoint `json:"checkpoint_id"`
	}
	type cursor struct {
		Configurable configurable `json:"configurable"`
	}
	body := struct {
		Limit  int     `json:"limit"`
		Before *cursor `json:"before,omitempty"`
	}{Limit: limit}
	if before != "" {
		body.Before = &cursor{configurable{before}}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, 0, err
	}
	answer, err := r.get(ctx, c, http.MethodPost, threadPath(t)+"/history", text)
	if err != nil {
		return nil, 0, err
	}
	page, ok := jsonscan.Elements(answer)
	if !ok {
		return nil, 0, fmt.Errorf("history of thread %s: %w", t, errOdd)
	}
	return page, len(answer), nil
}

// called is the input of a run.
type called struct{ input, command json.RawMessage }

// called reads the input of a run from the upstream. It is empty for a run that is deleted or hidden from the caller.
func (r *Recorder) called(ctx context.Context, c *proxy.Call, t id.Thread, run id.Run) (called, error) {
	answer, err := r.get(ctx, c, http.MethodGet, threadPath(t)+"/runs/"+string(run), nil)
	if refused(err) {
		return called{}, nil
	}
	if err != nil {
		return called{}, err
	}
	kwargs := gjson.GetBytes(answer, "kwargs")
	return called{json.RawMessage(kwargs.Get("input").Raw), json.RawMessage(kwargs.Get("command").Raw)}, nil
}
