package transfer

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/id"
	"understudy/internal/jsonplus"
)

// upstream answers a client as a server would, from a table by path.
func upstream(t *testing.T, answers map[string]func(body string) (int, string)) (*Server, error) {
	t.Helper()
	if answers["/threads/search"] == nil {
		answers["/threads/search"] = func(string) (int, string) { return 200, "[]" }
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := new(strings.Builder)
		_, _ = fmt.Fprint(body, readAll(r))
		assert.Equal(t, "off", r.Header.Get("X-Understudy-Overlay"))
		assert.Equal(t, "secret", r.Header.Get("Authorization"))
		answer := answers[r.URL.Path]
		if answer == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		code, text := answer(body.String())
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	c, err := OpenServer(t.Context(), s.URL, http.Header{"Authorization": {"secret"}}, nil)
	if c != nil {
		t.Cleanup(func() { _ = c.Close() })
		c.http.RetryWaitMin, c.http.RetryWaitMax = time.Millisecond, time.Millisecond
	}
	return c, err
}

func readAll(r *http.Request) string {
	var v json.RawMessage
	if json.NewDecoder(r.Body).Decode(&v) != nil {
		return ""
	}
	return string(v)
}

func TestOpenServerSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code         int
		answer, want string
	}{
		"no credentials": {401, "{}", "--header 'Authorization: …'"},
		"forbidden":      {403, "{}", "--header"},
		"another server": {404, "not found", "is it the address of a LangGraph Server?"},
		"no list":        {200, "{}", "does not return a list"},
		"no JSON":        {200, "{", "invalid JSON: is it the address"},
		"a page":         {200, "\n<html>", "with a page (200 OK): is it the address"},
		"a bad gateway":  {502, "<html>", "with a page (502 Bad Gateway)"},
		"a refusal":      {422, `{"detail":"no"}`, "returns 422"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := upstream(t, map[string]func(string) (int, string){"/threads/search": func(string) (int, string) { return c.code, c.answer }})
			assert.ErrorContains(t, err, c.want)
		})
	}
	_, err := OpenServer(t.Context(), "http://", nil, nil)
	assert.ErrorContains(t, err, "is no URL of a server: it has no host")
}

// A server that was never reached is not waited for; one that was is, because it may be restarted.
func TestOnlyServersThatAnsweredAreAskedAgain(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var asked atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = c.Close()
		}
	}()
	_, err = OpenServer(t.Context(), "http://"+l.Addr().String(), nil, nil)
	require.ErrorContains(t, err, "cannot be reached")
	require.EqualValues(t, 1, asked.Load())
	require.NoError(t, l.Close())

	fails := 2
	c, err := upstream(t, map[string]func(string) (int, string){"/assistants/search": func(string) (int, string) {
		if fails--; fails >= 0 {
			panic(http.ErrAbortHandler)
		}
		return 200, "[]"
	}})
	require.NoError(t, err)
	_, err = c.ask(t.Context(), http.MethodPost, "/assistants/search", map[string]any{})
	require.NoError(t, err)
}

// A server that goes away while it is read: what was moved stays, and the error says that the import continues. Each wait is announced, with what is waited for.
func TestServersThatGoAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func() (int, string){
		"dead":              func() (int, string) { panic(http.ErrAbortHandler) },
		"behind a proxy":    func() (int, string) { return 502, "<html>" },
		"stopping":          func() (int, string) { return 503, `{"detail":"stopping"}` },
		"a gateway's limit": func() (int, string) { return 504, "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]func(string) (int, string){}
			for _, path := range []string{"/assistants/search", "/threads/count", "/threads/t/history", "/store/namespaces"} {
				answers[path] = func(string) (int, string) { return away() }
			}
			c, err := upstream(t, answers)
			require.NoError(t, err)
			var waited []string
			ended := 0
			c.wait = func(what string) func() { waited = append(waited, what); return func() { ended++ } }
			_, count := c.CountThreads(t.Context())
			_, history := c.History(t.Context(), &Thread{Key: "t"})
			_, newest := c.Newest(t.Context(), &Thread{Key: "t"})
			errs := []error{count, history, newest}
			for _, err := range c.Assistants(t.Context()) {
				errs = append(errs, err)
			}
			for _, err := range c.Items(t.Context()) {
				errs = append(errs, err)
			}
			for _, err := range errs {
				require.True(t, fatal(err), "%v", err)
				require.ErrorContains(t, err, c.Name())
				require.ErrorContains(t, err, "run this again when it answers, it continues where it stopped")
			}
			require.Len(t, errs, 5)
			require.Len(t, waited, 5)
			require.Equal(t, 5, ended)
			require.Equal(t, "waiting for "+c.Name()+" to answer POST /threads/count", waited[0])
		})
	}
}

func state(ident, parent string, step int) string {
	before := "null"
	if parent != "" {
		before = fmt.Sprintf(`{"checkpoint_id":%q}`, parent)
	}
	return fmt.Sprintf(`{"values":{"messages":[{"content":"m%d","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":"%d"}]},"next":[],"tasks":[],
		"metadata":{"step":%d},"created_at":"2026-01-02T03:04:05+00:00","checkpoint":{"checkpoint_id":%q,"checkpoint_ns":""},"parent_checkpoint":%s}`, step, step, step, ident, before)
}

// TestHistoryComesInPages: by ids going back, in pages that grow while they are small.
func TestHistoryComesInPages(t *testing.T) {
	t.Parallel()
	const n = 75
	name := func(i int) string { return fmt.Sprintf("c%04d", i) }
	var mu sync.Mutex
	var limits []int64
	s, err := upstream(t, map[string]func(string) (int, string){"/threads/t/history": func(body string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		limits = append(limits, gjson.Get(body, "limit").Int())
		from := n
		if b := gjson.Get(body, "before.configurable.checkpoint_id").String(); b != "" {
			_, err := fmt.Sscanf(b, "c%d", &from)
			assert.NoError(t, err)
		}
		var rows []string
		for i := from - 1; i >= 0 && len(rows) < int(gjson.Get(body, "limit").Int()); i-- {
			parent := ""
			if i > 0 {
				parent = name(i - 1)
			}
			rows = append(rows, state(name(i), parent, i))
		}
		return 200, "[" + strings.Join(rows, ",") + "]"
	}})
	require.NoError(t, err)
	h, err := s.History(t.Context(), &Thread{Key: "t"})
	require.NoError(t, err)
	defer h.Close()
	assert.Equal(t, []int64{10, 20, 40, 80}, limits)
	var got []string
	versions := map[string]bool{}
	require.NoError(t, h.Read(t.Context(), parentsFirst(h.Links()), func(p *Step) error {
		got = append(got, string(p.ID))
		versions[gjson.GetBytes(p.Data, "channel_versions.messages").String()] = true
		return nil
	}))
	assert.Len(t, got, n)
	assert.Len(t, versions, n, "a value that changed has another version")
	assert.IsIncreasing(t, got)
}

func TestHistoryThatDoesNotEndIsAnError(t *testing.T) {
	t.Parallel()
	s, err := upstream(t, map[string]func(string) (int, string){"/threads/t/history": func(string) (int, string) {
		return 200, "[" + strings.Repeat(state("c1", "", 1)+",", 9) + state("c1", "", 1) + "]"
	}})
	require.NoError(t, err)
	_, err = s.History(t.Context(), &Thread{Key: "t"})
	assert.ErrorContains(t, err, "not in descending order")
}

func TestServerThatFailsIsAskedAgain(t *testing.T) {
	t.Parallel()
	calls := 0
	s, err := upstream(t, map[string]func(string) (int, string){"/threads/count": func(string) (int, string) {
		if calls++; calls < 3 {
			return 500, "oops"
		}
		return 200, "7"
	}})
	require.NoError(t, err)
	n, err := s.CountThreads(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 7, n)
}

func synthesized(t *testing.T, text string) *Step {
	t.Helper()
	p, _, err := synthesize([]byte(text), Link{ID: "c2", Parent: "c1"}, &made{versions: map[string]madeChannel{"branch:to:old": {"1", sum{}}}, highest: 4}, true, func(string) {})
	require.NoError(t, err)
	return p
}

func TestSynthesizeWaitingTask(t *testing.T) {
	t.Parallel()
	p := synthesized(t, `{"values":{"n":1,"list":[1]},"next":["ask"],"tasks":[{"id":"t1","name":"ask","path":["__pregel_pull","ask"],"error":null,"result":null,
		"interrupts":[{"id":"i1","value":"ok?"}]}],"metadata":{"step":3},"created_at":"x"}`)
	assert.Equal(t, `{"n":1,"branch:to:ask":null}`, gjson.GetBytes(p.Data, "channel_values").Raw)
	assert.False(t, gjson.GetBytes(p.Data, `channel_versions.branch:to:old`).Exists(), "a trigger holds for one step")
	assert.True(t, strings.HasPrefix(gjson.GetBytes(p.Data, `channel_versions.branch:to:ask`).String(), "00000000000000000000000000000005.0."))
	require.Len(t, p.Writes, 1)
	w := p.Writes[0]
	assert.Equal(t, []any{"t1", -3, "__interrupt__", "~__pregel_pull, ask"}, []any{w.TaskID, w.Index, w.Channel, w.Path})
	text, err := jsonplus.AppendJSON(nil, w.Type, w.Data)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"value":"ok?","id":"i1","response_schema":null}]`, string(text))
	require.Len(t, p.Blobs, 1)
	assert.Equal(t, "list", p.Blobs[0].Channel)
}

func TestSynthesizeSends(t *testing.T) {
	t.Parallel()
	const ai = `{"content":"","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":"a","tool_calls":[{"name":"x","args":{"q":1},"id":"1","type":"tool_call"}]}`
	sends := func(text string) string {
		for _, b := range synthesized(t, text).Blobs {
			if b.Channel == channelTasks {
				out, err := jsonplus.AppendJSON(nil, b.Type, b.Data)
				require.NoError(t, err)
				return string(out)
			}
		}
		return ""
	}
	const task = `{"id":"t","name":"tools","path":["__pregel_push",0,false],"interrupts":[],"error":null,"result":null}`
	assert.Equal(t, `[{"node":"tools","args":[{"name":"x","args":{"q":1},"id":"1","type":"tool_call"}]}]`, sends(`{"values":{"messages":[`+ai+`]},"next":["tools"],"tasks":[`+task+`]}`))
	assert.Equal(t, `[{"node":"tools","args":null}]`, sends(`{"values":{"messages":[]},"next":["tools"],"tasks":[`+task+`]}`))
	assert.Equal(t, "", sends(`{"values":{"messages":[`+ai+`]},"next":[],"tasks":[]}`))
}

// A state update without a node counts as one of the node that ran last: langgraph reads it from the versions that nodes have seen.
func TestSynthesizeSeenVersions(t *testing.T) {
	t.Parallel()
	const (
		start = `{"values":{},"next":["__start__"],"tasks":[{"id":"t","name":"__start__","path":["__pregel_pull","__start__"],"result":{"n":0}}],"metadata":{"source":"input"}}`
		first = `{"values":{"n":0},"next":["plan"],"tasks":[{"id":"t","name":"plan","path":["__pregel_pull","plan"],"result":{"n":1}}],"metadata":{"source":"loop"}}`
		waits = `{"values":{"n":1},"next":["ask"],"tasks":[{"id":"t","name":"ask","path":["__pregel_pull","ask"],"result":null}],"metadata":{"source":%q}}`
	)
	for last, want := range map[string]struct{ names, newest string }{
		fmt.Sprintf(waits, "loop"):                                       {"__input__ __start__ plan", "plan"},
		fmt.Sprintf(waits, "loop") + "\n" + fmt.Sprintf(waits, "fork"):   {"__input__ __start__ plan", "plan"},
		fmt.Sprintf(waits, "loop") + "\n" + fmt.Sprintf(waits, "update"): {"__input__ __start__ plan", "plan"},
		fmt.Sprintf(waits, "loop") + "\n" + fmt.Sprintf(waits, "loop"):   {"__input__ __start__ ask plan", "ask"},
		fmt.Sprintf(waits, "loop") + "\n" + fmt.Sprintf(waits, "input"):  {"__input__ __start__ ask plan", "ask"},
	} {
		var parent *made
		var step *Step
		for i, text := range append([]string{start, first}, strings.Split(last, "\n")...) {
			var err error
			step, parent, err = synthesize([]byte(text), Link{ID: id.Checkpoint(fmt.Sprint("c", i))}, parent, false, func(string) {})
			require.NoError(t, err)
		}
		var names []string
		var node, newest string
		gjson.GetBytes(step.Data, "versions_seen").ForEach(func(name, channels gjson.Result) bool {
			names = append(names, name.String())
			channels.ForEach(func(channel, version gjson.Result) bool {
				assert.NotEmpty(t, version.String(), "%s has seen a version of %s", name, channel)
				if version.String() > newest {
					node, newest = name.String(), version.String()
				}
				return true
			})
			return true
		})
		slices.Sort(names)
		assert.Equal(t, want.names, strings.Join(names, " "), last)
		assert.Equal(t, want.newest, node, last)
	}
}

func FuzzSynthesize(f *testing.F) {
	f.Add([]byte(state("c2", "c1", 1)), true)
	f.Add([]byte(`{"values":[1],"next":["__start__"],"tasks":[{"id":"1","name":"__start__","path":["__pregel_pull"],"result":{"a":{"$writes":[1,2]}},"interrupts":[{}],"error":"x"}]}`), false)
	f.Fuzz(func(t *testing.T, text []byte, head bool) {
		if !json.Valid(text) {
			return
		}
		p, _, err := synthesize(text, Link{ID: "c2"}, nil, head, func(string) {})
		if err != nil {
			return
		}
		if !json.Valid(p.Data) || !json.Valid(p.Metadata) {
			t.Fatalf("%q gives %q, %q", text, p.Data, p.Metadata)
		}
		if err := newSums().add(p); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// Transcripts come in the order of the conversation, although rows come in that in which they were
// written.
func TestTranscriptInOrder(t *testing.T) {
	t.Parallel()
	row := func(seq int, mid, metadata string) string {
		return fmt.Sprintf(`{"seq":%d,"category":"message","content":{"type":"human","id":%q,"content":"","additional_kwargs":{},"response_metadata":{}},"metadata":%s}`, seq, mid, metadata)
	}
	pages := []string{
		`{"data":[` + row(1, "h1", "{}") + `,` + row(2, "h2", "{}") + `],"has_more":true}`,
		`{"data":[{"seq":3,"category":"middleware","content":{},"metadata":{"after_seq":1}},` + row(4, "s4", `{"after_seq":0}`) + `,` + row(5, "t5", `{"after_seq":3}`) + `,` + row(6, "a6", "{}") + `],"has_more":false}`,
	}
	s, err := upstream(t, map[string]func(string) (int, string){
		"/threads/t/messages": func(string) (int, string) {
			page := pages[0]
			pages = pages[1:]
			return 200, page
		},
	})
	require.NoError(t, err)
	told, err := s.Transcript(t.Context(), &Thread{Key: "t"})
	require.NoError(t, err)
	var got []string
	for _, text := range told {
		got = append(got, gjson.GetBytes(text, "id").String())
	}
	require.Equal(t, []string{"s4", "h1", "t5", "h2", "a6"}, got)
}
