package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/serverurl"
	"understudy/store"
	"understudy/thread"
)

// Server is a server with the API: LangGraph Server, this one, or its proxy. The API does not show
// all of a checkpoint; see Notes.
type Server struct {
	base    string
	header  http.Header
	reached bool // it has answered. Requests are sent one after the other
	http    *retryablehttp.Client
	wait    func(what string) (end func())

	lost  map[string]int // number of threads by missing data
	busy  int
	crons int   // that stay there
	blind error // why they could not be counted
}

var (
	_ Source          = (*Server)(nil)
	_ AssistantSource = (*Server)(nil)
	_ CountedSource   = (*Server)(nil)
)

const (
	// The limits of a page of history. Its length depends on its size, because every row has the
	// whole state.
	leastRows, mostRows = 10, 100
	smallPage, bigPage  = 1 << 20, 8 << 20
	// maxAnswer is the maximum size of an answer read into memory.
	maxAnswer = 1 << 30
	// searchRows is the page size of a search.
	searchRows = 100
)

// OpenServer checks that there is a server at the address, in a form that package serverurl reads. header is sent with every request. wait is called with
// what is waited for, and what it returns when that has come; nil: nothing is called.
func OpenServer(ctx context.Context, address string, header http.Header, wait func(what string) (end func())) (*Server, error) {
	u, err := serverurl.Parse(address)
	if err != nil {
		return nil, err
	}
	s := &Server{base: u.String(), header: header.Clone(), http: retryablehttp.NewClient(), wait: wait, lost: map[string]int{}}
	if wait == nil {
		s.wait = func(string) func() { return func() {} }
	}
	if s.header == nil {
		s.header = http.Header{}
	}
	// The transcript of a proxy or another understudy is not the content of the checkpoint.
	s.header.Set("X-Understudy-Overlay", "off")
	s.http.Logger, s.http.RetryMax, s.http.RetryWaitMax = nil, 3, 5*time.Second
	s.http.ErrorHandler = retryablehttp.PassthroughErrorHandler
	// A server that was reached may be restarted; one that never was is away, or the address is wrong.
	s.http.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if err != nil && !s.reached {
			return false, err
		}
		s.reached = true
		return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	first, cancel := context.WithTimeoutCause(ctx, firstAnswer, fmt.Errorf("no answer within %s", firstAnswer))
	defer cancel()
	answer, err := s.ask(first, http.MethodPost, "/threads/search", map[string]any{"limit": 1})
	if err != nil {
		return nil, err
	}
	if !gjson.ParseBytes(answer).IsArray() {
		return nil, fmt.Errorf("%s is not a LangGraph Server: /threads/search does not return a list", s.Name())
	}
	if err := s.countCrons(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// countCrons counts what is not moved, for Notes. A server without crons, or whose credentials do
// not reach them, can be read all the same.
func (s *Server) countCrons(ctx context.Context) error {
	answer, err := s.ask(ctx, http.MethodPost, "/runs/crons/count", map[string]any{})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		s.crons = int(gjson.ParseBytes(answer).Int())
	case !fault.Is(err, fault.NotFound):
		s.blind = err
	}
	return nil
}

// Name is Source.Name.
func (s *Server) Name() string {
	u, err := url.Parse(s.base)
	if err != nil {
		return "the server"
	}
	return u.Redacted()
}

// Notes is Source.Notes.
func (s *Server) Notes() []string {
	notes := []string{"the API shows the state of graphs and not how it is stored: values come as JSON (messages become message objects again), " +
		"channels that a graph does not show are not there, and times of store items that expire are those of the server"}
	for _, what := range sortedKeys(s.lost) {
		notes = append(notes, fmt.Sprintf("%s (%d threads)", what, s.lost[what]))
	}
	if s.crons > 0 {
		notes = append(notes, fmt.Sprintf("%d crons are left out: create them again here, and delete them there so that they do not run twice", s.crons))
	}
	if s.blind != nil {
		notes = append(notes, fmt.Sprintf("crons are left out, and could not be counted: %v", s.blind))
	}
	if s.busy > 0 {
		notes = append(notes, fmt.Sprintf("%d threads had a run going on: import again when it has ended, for what came after", s.busy))
	}
	return notes
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Close is Source.Close.
func (s *Server) Close() error {
	s.http.HTTPClient.CloseIdleConnections()
	return nil
}

// pages calls fn with the rows of a search, page by page, until it returns false.
func (s *Server) pages(ctx context.Context, path, list string, body map[string]any, fn func(gjson.Result) bool) error {
	for at := 0; ; {
		body["limit"], body["offset"] = searchRows, at
		answer, err := s.ask(ctx, http.MethodPost, path, body)
		if err != nil {
			return err
		}
		rows := gjson.ParseBytes(answer)
		if list != "" {
			rows = rows.Get(list)
		}
		all := rows.Array()
		for _, row := range all {
			if !fn(row) {
				return nil
			}
		}
		if at += len(all); len(all) < searchRows {
			return nil
		}
	}
}

// CountThreads is Source.CountThreads.
func (s *Server) CountThreads(ctx context.Context) (int, error) {
	answer, err := s.ask(ctx, http.MethodPost, "/threads/count", map[string]any{})
	if fault.Is(err, fault.NotFound) {
		return -1, nil
	}
	return int(gjson.ParseBytes(answer).Int()), err
}

// Threads implements Source. Threads created meanwhile come last.
func (s *Server) Threads(ctx context.Context) iter.Seq2[*Thread, error] {
	return func(yield func(*Thread, error) bool) {
		met := map[string]bool{}
		var failed error
		err := s.pages(ctx, "/threads/search", "", map[string]any{
			"sort_by": "created_at", "sort_order": "asc",
			"select": []string{"thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "status", "config", "interrupts"},
		}, func(row gjson.Result) bool {
			t := threadOf(row)
			if t.Key == "" || met[t.Key] {
				return true
			}
			met[t.Key] = true
			if t.Row.Status == thread.Busy {
				s.busy++
			}
			if t.Row.Status == thread.Errored {
				// A search does not show errors.
				var whole []byte
				if whole, failed = s.ask(ctx, http.MethodGet, "/threads/"+url.PathEscape(t.Key), nil); failed != nil {
					return false
				}
				t.Row.Error = threadOf(gjson.ParseBytes(whole)).Row.Error
			}
			return yield(t, nil)
		})
		if err = errors.Join(err, failed); err != nil {
			yield(nil, err)
		}
	}
}

func threadOf(row gjson.Result) *Thread {
	at := func(key string) time.Time {
		t, _ := time.Parse(time.RFC3339Nano, row.Get(key).String()) // missing times are set later
		return t.UTC()
	}
	raw := func(key string) json.RawMessage {
		if v := row.Get(key); v.IsObject() {
			return json.RawMessage(v.Raw)
		}
		return nil
	}
	t := &thread.Thread{
		ID: id.Thread(row.Get("thread_id").String()), Status: thread.Status(row.Get("status").String()),
		CreatedAt: at("created_at"), UpdatedAt: at("updated_at"), StateUpdatedAt: at("state_updated_at"),
		Metadata: raw("metadata"), Config: raw("config"), Interrupts: raw("interrupts"), Error: raw("error"),
	}
	switch t.Status {
	case thread.Idle, thread.Busy, thread.Interrupted, thread.Errored:
	default:
		t.Status = thread.Idle
	}
	return &Thread{Key: string(t.ID), Row: t}
}

// Newest is CountedSource.Newest.
func (s *Server) Newest(ctx context.Context, t *Thread) (id.Checkpoint, error) {
	answer, err := s.ask(ctx, http.MethodPost, "/threads/"+url.PathEscape(t.Key)+"/history", map[string]any{"limit": 1})
	return id.Checkpoint(gjson.GetBytes(answer, "0.checkpoint.checkpoint_id").String()), err
}

// Items is Source.Items.
func (s *Server) Items(ctx context.Context) iter.Seq2[*store.Item, error] {
	return func(yield func(*store.Item, error) bool) {
		var namespaces [][]string
		err := s.pages(ctx, "/store/namespaces", "namespaces", map[string]any{}, func(row gjson.Result) bool {
			namespaces = append(namespaces, texts(row))
			return true
		})
		if fault.Is(err, fault.NotFound) {
			return // it has no store
		}
		if err != nil {
			yield(nil, err)
			return
		}
		goOn := true
		for _, ns := range namespaces {
			if err := s.pages(ctx, "/store/items/search", "items", map[string]any{"namespace_prefix": ns}, func(row gjson.Result) bool {
				i := itemOf(row)
				if !slices.Equal(i.Namespace, ns) {
					return true // of a namespace below, which comes itself
				}
				goOn = yield(i, nil)
				return goOn
			}); err != nil {
				yield(nil, err)
				return
			}
			if !goOn {
				return
			}
		}
	}
}

func texts(v gjson.Result) (out []string) {
	for _, e := range v.Array() {
		out = append(out, e.String())
	}
	return out
}

func itemOf(row gjson.Result) *store.Item {
	i := &store.Item{Namespace: texts(row.Get("namespace")), Key: row.Get("key").String(), Value: json.RawMessage(row.Get("value").Raw)}
	i.CreatedAt, _ = time.Parse(time.RFC3339Nano, row.Get("created_at").String())
	i.UpdatedAt, _ = time.Parse(time.RFC3339Nano, row.Get("updated_at").String())
	if len(i.Value) == 0 {
		i.Value = emptyObject
	}
	return i
}

// Assistants is AssistantSource.Assistants. The default assistants of graphs are left out: every
// server makes its own.
func (s *Server) Assistants(ctx context.Context) iter.Seq2[Assistant, error] {
	return func(yield func(Assistant, error) bool) {
		var failed error
		err := s.pages(ctx, "/assistants/search", "", map[string]any{"sort_by": "created_at", "sort_order": "asc"}, func(row gjson.Result) bool {
			a := assistantOf(row)
			if row.Get("metadata.created_by").String() == "system" && a.ID == id.DefaultAssistant(a.GraphID) {
				return true
			}
			var versions []*assistant.Assistant
			if failed = s.pages(ctx, "/assistants/"+url.PathEscape(string(a.ID))+"/versions", "", map[string]any{}, func(row gjson.Result) bool {
				versions = append(versions, assistantOf(row))
				return true
			}); failed != nil {
				return false
			}
			slices.SortFunc(versions, func(a, b *assistant.Assistant) int { return a.Version - b.Version })
			return yield(Assistant{a, versions}, nil)
		})
		if err = errors.Join(err, failed); err != nil {
			yield(Assistant{}, err)
		}
	}
}

func assistantOf(row gjson.Result) *assistant.Assistant {
	raw := func(key string) json.RawMessage {
		if v := row.Get(key); v.Exists() && v.Type != gjson.Null {
			return json.RawMessage(v.Raw)
		}
		return emptyObject
	}
	a := &assistant.Assistant{
		ID: id.Assistant(row.Get("assistant_id").String()), GraphID: row.Get("graph_id").String(), Name: row.Get("name").String(),
		Config: raw("config"), Context: raw("context"), Metadata: raw("metadata"), Version: max(1, int(row.Get("version").Int())),
	}
	if d := row.Get("description"); d.Type == gjson.String {
		text := d.String()
		a.Description = &text
	}
	a.CreatedAt, _ = time.Parse(time.RFC3339Nano, row.Get("created_at").String())
	a.UpdatedAt, _ = time.Parse(time.RFC3339Nano, row.Get("updated_at").String())
	if a.UpdatedAt.IsZero() {
		a.UpdatedAt = a.CreatedAt
	}
	return a
}

// spool keeps the history of a thread in a file: it comes newest first and is wanted oldest first,
// and is too large for memory.
type spool struct {
	s     *Server
	key   string
	file  *os.File
	size  int64
	links []Link
	at    map[place]span
	made  map[place]*made // what was synthesized for a checkpoint, for those that follow it
}

type span struct{ from, length int64 }

// History is Source.History: it fetches all namespaces of a thread.
func (s *Server) History(ctx context.Context, t *Thread) (_ History, err error) {
	f, err := os.CreateTemp("", "understudy-import-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary file for the history: %w", err)
	}
	// Without a name it is gone whatever happens.
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	h := &spool{s: s, key: t.Key, file: f, at: map[place]span{}, made: map[place]*made{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	met := map[string]bool{"": true}
	for queue := []string{""}; len(queue) > 0; queue = queue[1:] {
		if err := h.fetch(ctx, queue[0], func(ns string) {
			if !met[ns] {
				met[ns] = true
				queue = append(queue, ns)
			}
		}); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// fetch reads the history of a namespace; found is called with those below it.
func (h *spool) fetch(ctx context.Context, ns string, found func(ns string)) error {
	rows, before := leastRows, ""
	for {
		body := map[string]any{"limit": rows}
		if ns != "" {
			body["checkpoint"] = map[string]any{"checkpoint_ns": ns}
		}
		if before != "" {
			body["before"] = map[string]any{"configurable": map[string]any{"checkpoint_id": before, "checkpoint_ns": ns}}
		}
		answer, err := h.s.ask(ctx, http.MethodPost, "/threads/"+url.PathEscape(h.key)+"/history", body)
		if err != nil {
			return err
		}
		page := gjson.ParseBytes(answer).Array()
		for _, row := range page {
			checkpoint := row.Get("checkpoint.checkpoint_id").String()
			if checkpoint == "" {
				continue
			}
			if checkpoint >= before && before != "" {
				return fmt.Errorf("history of thread %s is not in descending order: %s comes after %s", h.key, checkpoint, before)
			}
			before = checkpoint
			if err := h.keep(ns, row); err != nil {
				return err
			}
			for _, task := range row.Get("tasks").Array() {
				if below := task.Get("checkpoint.checkpoint_ns").String(); below != "" {
					found(below)
				}
			}
		}
		if len(page) < rows || before == "" {
			return nil
		}
		switch {
		case len(answer) < smallPage:
			rows = min(rows*2, mostRows)
		case len(answer) > bigPage:
			rows = max(rows/2, leastRows)
		}
	}
}

func (h *spool) keep(ns string, row gjson.Result) error {
	at := place{ns, id.Checkpoint(row.Get("checkpoint.checkpoint_id").String())}
	if _, ok := h.at[at]; ok {
		return nil
	}
	n, err := h.file.WriteAt([]byte(row.Raw), h.size)
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the temporary folder ("+os.TempDir()+") has no space for the history: set TMPDIR to one that has", err)
	}
	h.at[at] = span{h.size, int64(n)}
	h.size += int64(n)
	parent := row.Get("parent_checkpoint.checkpoint_id").String()
	h.links = append(h.links, Link{NS: ns, ID: at.id, Parent: id.Checkpoint(parent)})
	return nil
}

// Links is History.Links, by namespace and id.
func (h *spool) Links() []Link {
	slices.SortFunc(h.links, func(a, b Link) int {
		if c := strings.Compare(a.NS, b.NS); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return h.links
}

// Close is History.Close.
func (h *spool) Close() error { return h.file.Close() }

// Read is History.Read. All checkpoints come after their parents, because versions continue from
// those of the parent.
func (h *spool) Read(ctx context.Context, links []Link, fn func(*Step) error) error {
	heads := map[string]id.Checkpoint{}
	for _, l := range h.links {
		heads[l.NS] = max(heads[l.NS], l.ID)
	}
	lost := map[string]bool{}
	for _, l := range links {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := h.at[place{l.NS, l.ID}]
		raw := make([]byte, at.length)
		if _, err := h.file.ReadAt(raw, at.from); err != nil {
			return fmt.Errorf("temporary file of the history: %w", err)
		}
		step, made, err := synthesize(raw, l, h.made[place{l.NS, l.Parent}], heads[l.NS] == l.ID, func(what string) { lost[what] = true })
		if err != nil {
			return fmt.Errorf("checkpoint %s: %w", l.ID, err)
		}
		h.made[place{l.NS, l.ID}] = made
		if err := fn(step); err != nil {
			return err
		}
	}
	for what := range lost {
		h.s.lost[what]++
	}
	return nil
}
