package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/proxy"
	"understudy/proxy/record"
	"understudy/storage/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream is a server with threads, as far as recording asks it. Its answers have the shape of LangGraph Server's.
type upstream struct {
	mu      sync.Mutex
	threads map[id.Thread]*talk
	asked   []string // method and path of each request
	bytes   int
	// fails, when set, is asked before each request: an error, or a status that is not 0, is the answer.
	fails func(method, path string) (int, error)
	clock time.Time
	made  int
}

// talk is a thread.
type talk struct {
	id          id.Thread
	created     time.Time
	updated     time.Time
	checkpoints []*checkpoint // oldest first
	runs        map[string]string
	status      map[string]string // of runs that did not succeed
	viewer      string            // who may see it; "" everybody
}

// checkpoint is one of its checkpoints.
type checkpoint struct {
	ID, Parent string
	Run        string
	Source     string
	Step       int
	Messages   []string // JSON each
	Extra      string   // further members of values, with a leading comma
	Results    string   // tasks, as JSON; "" none
	Next       []string
	LiveValues []string // as the head shows while tasks have finished; nil: Messages
	At         time.Time
}

func newUpstream() *upstream {
	return &upstream{threads: map[id.Thread]*talk{}, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (u *upstream) now() time.Time {
	u.clock = u.clock.Add(1234 * time.Microsecond)
	return u.clock
}

// newID makes an id that sorts after those made before.
func (u *upstream) newID() string {
	u.made++
	return fmt.Sprintf("1f0e5a88-%04x-6c63-8012-0a547808c933", u.made)
}

func (u *upstream) thread(t id.Thread) *talk {
	x := &talk{id: t, created: u.now(), runs: map[string]string{}, status: map[string]string{}}
	x.updated = x.created
	u.threads[t] = x
	return x
}

func (x *talk) head() *checkpoint {
	if len(x.checkpoints) == 0 {
		return nil
	}
	return x.checkpoints[len(x.checkpoints)-1]
}

func (x *talk) at(c string) *checkpoint {
	for _, cp := range x.checkpoints {
		if cp.ID == c {
			return cp
		}
	}
	return nil
}

// save adds a checkpoint on top of another.
func (u *upstream) save(x *talk, parent *checkpoint, source, run string, messages []string) *checkpoint {
	c := &checkpoint{ID: u.newID(), Run: run, Source: source, Messages: slices.Clone(messages), At: u.now()}
	if parent != nil {
		c.Parent, c.Step = parent.ID, parent.Step+1
	}
	x.checkpoints = append(x.checkpoints, c)
	x.updated = c.At
	return c
}

func (x *talk) messages(c *checkpoint) []string {
	if c == nil {
		return nil
	}
	return c.Messages
}

const stamp = "2006-01-02T15:04:05.000000+00:00"

func (x *talk) row() string {
	values := "null"
	if h := x.head(); h != nil {
		values = x.values(h.Messages, h.Extra)
	}
	return fmt.Sprintf(`{"thread_id":%q,"created_at":%q,"updated_at":%q,"metadata":{"graph_id":"g"},"status":"idle","values":%s}`,
		x.id, x.created.Format(stamp), x.updated.Format(stamp), values)
}

func (x *talk) values(messages []string, extra string) string {
	return `{"messages":[` + strings.Join(messages, ",") + `]` + extra + `}`
}

func (x *talk) state(c *checkpoint, live bool) string {
	if c == nil {
		return `{"values":{},"next":[],"tasks":[],"metadata":null,"created_at":null,"checkpoint":null,"parent_checkpoint":null,"interrupts":[]}`
	}
	named := func(cid string) string {
		if cid == "" {
			return "null"
		}
		return fmt.Sprintf(`{"checkpoint_id":%q,"thread_id":%q,"checkpoint_ns":""}`, cid, x.id)
	}
	run := ""
	if c.Run != "" {
		run = fmt.Sprintf(`"run_id":%q,`, c.Run)
	}
	messages, next := c.Messages, c.Next
	if live && c.LiveValues != nil {
		messages, next = c.LiveValues, nil
	}
	names, _ := json.Marshal(append([]string{}, next...))
	tasks := "[]"
	if c.Results != "" {
		tasks = c.Results
	}
	return fmt.Sprintf(`{"values":%s,"next":%s,"tasks":%s,"metadata":{"graph_id":"g",%s"source":%q,"step":%d,"parents":{}},"created_at":%q,"checkpoint":%s,"parent_checkpoint":%s,"interrupts":[]}`,
		x.values(messages, c.Extra), names, tasks, run, c.Source, c.Step, c.At.Format(stamp), named(c.ID), named(c.Parent))
}

func (x *talk) history(before string, limit int) string { return x.historyOf("", before, limit) }

// historyOf is that of one run; "" of all.
func (x *talk) historyOf(run, before string, limit int) string {
	var rows []string
	for _, c := range slices.Backward(x.checkpoints) {
		if (run == "" || c.Run == run) && (before == "" || c.ID < before) && len(rows) < limit {
			rows = append(rows, x.state(c, false))
		}
	}
	return "[" + strings.Join(rows, ",") + "]"
}

var errDown = errors.New("connection refused")

// ask is record.Ask.
func (u *upstream) ask(ctx context.Context, header http.Header, method, path string, body []byte) (int, http.Header, []byte, error) {
	if ctx.Err() != nil {
		return 0, nil, nil, context.Cause(ctx)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, method+" "+path)
	if u.fails != nil {
		if status, err := u.fails(method, path); err != nil || status != 0 {
			return status, nil, []byte(`{"detail":"no"}`), err
		}
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	x := u.threads[id.Thread(parts[1])]
	if x == nil || x.viewer != "" && header.Get("X-User") != x.viewer {
		return http.StatusNotFound, nil, []byte(`{"detail":"Thread not found"}`), nil
	}
	answer := ""
	switch rest := strings.Join(parts[2:], "/"); {
	case rest == "":
		answer = x.row()
	case rest == "state":
		answer = x.state(x.head(), true)
	case strings.HasPrefix(rest, "state/"):
		answer = x.state(x.at(parts[3]), false)
	case rest == "history":
		limit := int(gjson.GetBytes(body, "limit").Int())
		answer = x.historyOf(gjson.GetBytes(body, "metadata.run_id").String(), gjson.GetBytes(body, "before.configurable.checkpoint_id").String(), limit)
	case strings.HasPrefix(rest, "runs/"):
		kwargs, ok := x.runs[parts[3]]
		if !ok {
			return http.StatusNotFound, nil, []byte(`{"detail":"Run not found"}`), nil
		}
		status := x.status[parts[3]]
		if status == "" {
			status = "success"
		}
		answer = fmt.Sprintf(`{"run_id":%q,"status":%q,"updated_at":%q,"kwargs":%s}`, parts[3], status, u.now().Format(stamp), kwargs)
	default:
		return http.StatusNotFound, nil, []byte(`{"detail":"Not Found"}`), nil
	}
	u.bytes += len(answer)
	return http.StatusOK, nil, []byte(answer), nil
}

// requests returns what was asked since the last call.
func (u *upstream) requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := u.asked
	u.asked = nil
	return out
}

func human(mid string) string {
	return fmt.Sprintf(`{"content":"said %s","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":%q}`, mid, mid)
}

func ai(mid string) string {
	return fmt.Sprintf(`{"content":"answer %s","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":%q,"tool_calls":[]}`, mid, mid)
}

func summary(mid string) string {
	return fmt.Sprintf(`{"content":"in short %s","additional_kwargs":{"lc_source":"summarization"},"response_metadata":{},"type":"human","name":null,"id":%q}`, mid, mid)
}

// world is a recorder in front of an upstream.
type world struct {
	*record.Recorder
	u     *upstream
	store *sqlite.Store
	call  *proxy.Call
	// breaks, when set at a restart, is asked before each transaction whether it fails.
	breaks func() bool
	// overlay, when set at a restart, is in place of apart.
	overlay *overlay.Config
}

// breaking is a store whose transactions fail at times.
type breaking struct {
	record.Store
	breaks func() bool
}

var errBroken = errors.New("disk full")

func (b breaking) Record(ctx context.Context, fn func(record.Tx) error) error {
	if b.breaks() {
		return errBroken
	}
	return b.Store.Record(ctx, fn)
}

func setup(t testing.TB) *world { return setupOn(t, newUpstream()) }

func setupOn(t testing.TB, u *upstream) *world {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: sqlite.InMemory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := &world{u: u, store: s, call: &proxy.Call{Header: http.Header{}}}
	w.restart(t)
	return w
}

// History is Recorder.History of a history that is not bounded.
func (w *world) History(ctx context.Context, c *proxy.Call, t id.Thread, body []byte) []byte {
	out, _, _ := w.Recorder.History(ctx, c, t, body)
	return out
}

// restart begins with a new recorder on the same database.
func (w *world) restart(t testing.TB) {
	t.Helper()
	store := w.store.Upstream()
	if w.breaks != nil {
		store = breaking{store, w.breaks}
	}
	o := apart()
	if w.overlay != nil {
		o = *w.overlay
	}
	r := record.New(record.Options{
		Store: store, Ask: w.u.ask, Overlay: o, Log: slog.New(slog.DiscardHandler),
	})
	w.Recorder = r
	// Background work that outlives its reader must end before the database closes.
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, r.Run(ctx))
	})
}

// state reads the state of a thread as a client would through the proxy.
func (w *world) state(t testing.TB, x *talk) []byte {
	t.Helper()
	return w.State(t.Context(), w.call, x.id, true, []byte(x.state(x.head(), true)))
}

// said returns the ids of messages, markers as (n).
func said(messages gjson.Result) string {
	var out []string
	for _, m := range messages.Array() {
		if n := m.Get("additional_kwargs.summary_marker.replaced_count"); n.Exists() {
			out = append(out, "("+n.String()+")")
		} else {
			out = append(out, m.Get("id").String())
		}
	}
	return strings.Join(out, " ")
}

func saidIn(state []byte) string { return said(gjson.GetBytes(state, "values.messages")) }

// people leaves markers out.
func people(said string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(said), func(s string) bool { return s[0] == '(' }), " ")
}

func (w *world) page(t *testing.T, x *talk) string {
	t.Helper()
	page, err := w.Messages(t.Context(), w.call, eventstore.PageQuery{Thread: x.id, Limit: 1000})
	require.NoError(t, err)
	var out []string
	for _, e := range page.Rows {
		if e.Type == eventstore.TypeSummarize {
			out = append(out, "("+gjson.GetBytes(e.Content, "replaced_count").String()+")")
		} else {
			out = append(out, gjson.GetBytes(e.Content, "id").String())
		}
	}
	return strings.Join(out, " ")
}

// run is a run that says something and is answered, each step a checkpoint. condense keeps so many of what was said before.
func (u *upstream) run(x *talk, from *checkpoint, n, keep int) *checkpoint {
	run := fmt.Sprintf("01a1fe1e-%04d-702a-948d-68b100a0daa7", u.made)
	say := human(fmt.Sprintf("h%d", n))
	x.runs[run] = fmt.Sprintf(`{"input":{"messages":[%s]},"command":null}`, say)
	c := u.save(x, from, "input", run, x.messages(from))
	c.Next = []string{"__start__"}
	c.Results = fmt.Sprintf(`[{"id":"t","name":"__start__","path":[],"error":null,"interrupts":[],"result":{"messages":[%s]}}]`, say)
	list := append(slices.Clone(c.Messages), say)
	c = u.save(x, c, "loop", run, list)
	if keep > 0 && len(list) > keep {
		sum := summary(fmt.Sprintf("s%d", n))
		c.Next = []string{"summarize"}
		c.Results = fmt.Sprintf(`[{"id":"t","name":"summarize","path":[],"error":null,"interrupts":[],"result":{"messages":[{"type":"remove","id":"__remove_all__","content":""},%s]}}]`, sum)
		list = append([]string{sum}, list[len(list)-keep:]...)
		c = u.save(x, c, "loop", run, list)
	}
	list = append(list, ai(fmt.Sprintf("a%d", n)))
	return u.save(x, c, "loop", run, list)
}

// apart shows markers as messages of their own.
func apart() overlay.Config {
	s := overlay.Defaults()
	s.Markers = overlay.SystemMarkers
	return overlay.Config{Settings: s}
}
