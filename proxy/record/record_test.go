package record_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/proxy"
	"understudy/proxy/record"
)

func TestOldConversationIsWhole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 8 {
		keep := 0
		if n == 3 || n == 6 {
			keep = 2
		}
		w.u.run(x, x.head(), n+1, keep)
	}
	state := w.state(t, x)
	require.Equal(t, "h1 a1 h2 a2 h3 (5) a3 h4 a4 h5 a5 h6 (6) a6 h7 a7 h8 a8", saidIn(state))
	require.True(t, gjson.ValidBytes(state))
	require.False(t, gjson.GetBytes(state, "metadata.incomplete").Exists())
	require.Equal(t, "h1 a1 h2 a2 h3 a3 h4 (5) a4 h5 a5 h6 a6 h7 (6) a7 h8 a8", w.page(t, x))

	w.u.requests()
	require.Equal(t, state, w.state(t, x))
	require.Empty(t, w.u.requests(), "a recorded thread is shown without asking")

	raw := x.history("", 100)
	history := w.History(t.Context(), w.call, x.id, []byte(raw))
	whole := saidIn(state)
	for _, row := range gjson.ParseBytes(history).Array() {
		shown := people(said(row.Get("values.messages")))
		require.True(t, strings.HasPrefix(people(whole), shown), shown)
	}
	require.Empty(t, w.u.requests())
}

func TestNothingCondensedIsTheSameBytes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	w.u.run(x, x.head(), 2, 0)
	body := []byte(x.state(x.head(), true))
	out := w.State(t.Context(), w.call, x.id, true, body)
	require.Same(t, &body[0], &out[0])
	list := []byte(x.history("", 10))
	out = w.History(t.Context(), w.call, x.id, list)
	require.Same(t, &list[0], &out[0])
	row := []byte("[" + x.row() + "]")
	out = w.Threads(t.Context(), w.call, row)
	require.Same(t, &row[0], &out[0])
}

// A new checkpoint costs its parents and a look at the thread.
func TestOnlyWhatLacksIsFetched(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 30 {
		w.u.run(x, x.head(), n+1, 0)
	}
	w.state(t, x)
	w.u.requests()
	w.u.run(x, x.head(), 31, 3)
	require.Contains(t, people(saidIn(w.state(t, x))), "h1 a1")
	require.Equal(t, []string{"POST /threads/t1/history", "GET /threads/t1"}, w.u.requests())
}

func TestAnotherThreadOfTheSameID(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 4 {
		w.u.run(x, x.head(), n+1, 2)
	}
	require.Contains(t, saidIn(w.state(t, x)), "h1")
	y := w.u.thread("t1") // deleted around the proxy, and made again
	require.Empty(t, w.page(t, y))
	_, err := w.store.Thread(t.Context(), "t1")
	require.Error(t, err, "what was recorded went")
	w.u.run(y, nil, 7, 0)
	require.Equal(t, "h7 a7", saidIn(w.state(t, y)))
	require.Equal(t, "h7 a7", w.page(t, y))
	// An answer that left before it was deleted is not recorded for the new one.
	late := w.State(t.Context(), w.call, "t1", true, []byte(x.state(x.head(), true)))
	require.NotContains(t, saidIn(late), "h1")
	require.True(t, gjson.GetBytes(late, "metadata.incomplete").Bool())
	w.History(t.Context(), w.call, "t1", []byte(x.history("", 5)))
	require.Equal(t, "h7 a7", w.page(t, y))
	page, err := w.Events(t.Context(), w.call, eventstore.PageQuery{Thread: "t1", Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Rows, 2)
}

// The new thread has the same list as the old one: only `created_at` differs.
func TestAnotherThreadWithTheSameWords(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 4 {
		w.u.run(x, x.head(), n+1, 2)
	}
	w.state(t, x)
	y := w.u.thread("t1")
	c := w.u.save(y, nil, "input", "r", x.head().Messages)
	for _, body := range []string{y.row(), "[" + y.row() + "]"} {
		require.NotContains(t, string(w.Threads(t.Context(), w.call, []byte(body))), `"h1"`)
	}
	run, _ := w.Begin(t.Context(), w.call, "t1", []byte(`{"assistant_id":"g"}`))
	require.NotContains(t, string(run.Result(t.Context(), []byte(y.values(c.Messages, "")))), `"h1"`)
	run.End(t.Context())
}

func TestOwnRoutesAskFirst(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	require.Equal(t, "h1 a1", w.page(t, x))
	x.viewer = "ann"
	_, err := w.Messages(t.Context(), w.call, eventstore.PageQuery{Thread: "t1", Limit: 10})
	var no *record.Refused
	require.ErrorAs(t, err, &no)
	require.Equal(t, 404, no.Status)
	require.JSONEq(t, `{"detail":"Thread not found"}`, string(no.Body))
	ann := &proxy.Call{Header: http.Header{"X-User": {"ann"}}}
	page, err := w.Events(t.Context(), ann, eventstore.PageQuery{Thread: "t1", Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Rows, 2)
	_, err = w.Events(t.Context(), ann, eventstore.PageQuery{Thread: "t1", Run: "01a1fe1e-9999-702a-948d-68b100a0daa7", Limit: 10})
	require.ErrorAs(t, err, &no)

	w.u.fails = func(string, string) (int, error) { return 0, errDown }
	_, err = w.Messages(t.Context(), ann, eventstore.PageQuery{Thread: "t1", Limit: 10})
	require.ErrorIs(t, err, errDown)
	ann.Offline = true
	page, err = w.Messages(t.Context(), ann, eventstore.PageQuery{Thread: "t1", Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Rows, 2)
}

func TestPrunedHistorySaysSo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 5 {
		w.u.run(x, x.head(), n+1, 2)
	}
	x.checkpoints = x.checkpoints[len(x.checkpoints)-3:]
	state := w.state(t, x)
	require.True(t, gjson.GetBytes(state, "metadata.incomplete").Bool())
	require.NotEmpty(t, saidIn(state))
	w.u.requests()
	require.Equal(t, state, w.state(t, x))
	require.Empty(t, w.u.requests(), "it is known to be pruned")
	page, err := w.Messages(t.Context(), w.call, eventstore.PageQuery{Thread: "t1", Limit: 100})
	require.NoError(t, err)
	require.True(t, page.Incomplete)
}

func TestBrokenUpstreamIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(method, path string) (int, error){
		"down":            func(string, string) (int, error) { return 0, errDown },
		"history is 500":  func(m, p string) (int, error) { return map[bool]int{true: 500}[strings.HasSuffix(p, "/history")], nil },
		"no more threads": func(m, p string) (int, error) { return map[bool]int{true: 500}[p == "/threads/t1"], nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			x := w.u.thread("t1")
			for n := range 5 {
				w.u.run(x, x.head(), n+1, 2)
			}
			w.u.fails = fails
			raw := []byte(x.state(x.head(), true))
			state := w.State(t.Context(), w.call, x.id, true, raw)
			require.Equal(t, gjson.GetBytes(raw, "values").Raw, gjson.GetBytes(state, "values").Raw)
			require.True(t, gjson.GetBytes(state, "metadata.incomplete").Bool())
			w.u.fails = nil
			state = w.state(t, x)
			require.Contains(t, people(saidIn(state)), "h1 a1")
			require.False(t, gjson.GetBytes(state, "metadata.incomplete").Exists())
		})
	}
}

// A head whose task has finished shows what that wrote: recorded is what the checkpoint holds.
func TestLiveHeadIsNotTheCheckpoint(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	h := x.head()
	h.Next = []string{"a", "b"}
	h.Results = `[{"id":"1","name":"a","interrupts":[],"result":{"messages":[` + ai("x") + `]}},{"id":"2","name":"b","interrupts":[],"result":null}]`
	h.LiveValues = append(slices.Clone(h.Messages), ai("x"))
	require.Equal(t, "h1 a1 x", saidIn(w.state(t, x)))
	require.Equal(t, "h1 a1", w.page(t, x))
	require.Equal(t, "h1 a1", saidIn(w.State(t.Context(), w.call, x.id, false, []byte(x.state(h, false)))))
}

func TestRemovedByClientStaysRemoved(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	w.u.run(x, x.head(), 2, 0)
	w.state(t, x)
	// By an input, in a run that is known by its row alone when its first checkpoint was recorded before it had written.
	c := w.u.save(x, x.head(), "input", "r3", x.head().Messages)
	c.Next = []string{"__start__"}
	w.state(t, x)
	x.runs["r3"] = `{"input":{"messages":[{"type":"remove","id":"h1"}]},"command":null}`
	c = w.u.save(x, c, "loop", "r3", x.head().Messages[1:])
	require.Equal(t, "a1 h2 a2", saidIn(w.state(t, x)))
	// By an update of state.
	w.u.save(x, c, "update", "", c.Messages[1:])
	require.Equal(t, "h2 a2", saidIn(w.state(t, x)))
	w.u.run(x, x.head(), 3, 1)
	require.Equal(t, "h2 a2 (2) h3 a3", saidIn(w.state(t, x)))
}

func TestForkHasItsOwnLineage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	early := w.u.run(x, x.head(), 2, 0)
	late := w.u.run(x, x.head(), 3, 2)
	w.state(t, x)
	w.u.run(x, early, 9, 0)
	require.Equal(t, "h1 a1 h2 a2 h9 a9", saidIn(w.state(t, x)))
	require.Equal(t, "h1 a1 h2 (3) a2 h3 a3", saidIn(w.State(t.Context(), w.call, x.id, false, []byte(x.state(late, false)))))
	require.Equal(t, "h1 a1 h2 a2 h9 a9", w.page(t, x))
}

// Graphs without ids may come to the same words again.
func TestTheSameWordsAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	hi := `{"content":"hi","additional_kwargs":{},"type":"human","name":null,"id":null}`
	w.u.save(x, nil, "loop", "r1", []string{hi})
	w.u.save(x, x.head(), "loop", "r2", []string{hi, hi})
	w.u.save(x, x.head(), "loop", "r3", []string{hi})
	require.Len(t, strings.Fields(saidIn(w.state(t, x))), 3, "two messages and a marker")
}

func TestThreadsAreMatchedByContent(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 4 {
		w.u.run(x, x.head(), n+1, 2)
	}
	for range 2 {
		out := w.Threads(t.Context(), w.call, []byte("["+x.row()+"]"))
		require.Contains(t, people(said(gjson.GetBytes(out, "0.values.messages"))), "h1 a1 h2")
	}
	w.u.requests()
	out := w.Threads(t.Context(), w.call, []byte(x.row()))
	require.Contains(t, people(saidIn(out)), "h1 a1 h2")
	require.Empty(t, w.u.requests())
}

func TestManyReadersDoTheWorkOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 40 {
		w.u.run(x, x.head(), n+1, 4)
	}
	body := []byte(x.state(x.head(), true))
	done := make(chan string)
	for range 8 {
		go func() { done <- saidIn(w.State(context.Background(), w.call, x.id, true, body)) }()
	}
	first := <-done
	require.Contains(t, people(first), "h1 a1")
	for range 7 {
		require.Equal(t, first, <-done)
	}
	n := 0
	for _, r := range w.u.requests() {
		if r == "POST /threads/t1/history" {
			n++
		}
	}
	require.LessOrEqual(t, n, 5)
	page, err := w.Events(t.Context(), w.call, eventstore.PageQuery{Thread: x.id, Types: []string{eventstore.TypeHuman}, Limit: 1000})
	require.NoError(t, err)
	require.Len(t, page.Rows, 40, "nothing is there twice")
}

func TestReaderLeavesWorkGoesOn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 10 {
		w.u.run(x, x.head(), n+1, 4)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	goOn := make(chan struct{})
	once := false
	w.u.fails = func(string, string) (int, error) {
		if !once {
			once = true
			close(asked)
			<-goOn
		}
		return 0, nil
	}
	left := make(chan []byte)
	go func() { left <- w.State(ctx, w.call, x.id, true, []byte(x.state(x.head(), true))) }()
	<-asked
	cancel()
	<-left
	close(goOn)
	require.Contains(t, people(saidIn(w.state(t, x))), "h1 a1")
	n := 0
	for _, r := range w.u.requests() {
		if r == "GET /threads/t1" {
			n++
		}
	}
	require.Equal(t, 2, n, "one flight")
}

func TestHostileSnapshots(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	a := w.u.save(x, nil, "loop", "r", []string{human("1")})
	b := w.u.save(x, a, "loop", "r", []string{human("1"), human("2")})
	a.Parent = b.ID // each is the other's parent
	require.Equal(t, "1 2", saidIn(w.state(t, x)))
	run := w.Join(t.Context(), w.call, x.id, "r")
	run.Event(t.Context(), "values", []byte(`{"messages":[]}`)) // follows what came before the run
	run.End(t.Context())
	y := w.u.thread("t2")
	c := w.u.save(y, nil, "loop", "r", []string{human("1"), human("1"), `null`})
	c.Parent = c.ID
	require.NotEmpty(t, w.state(t, y))
	z := w.u.thread("t3")
	w.u.save(z, nil, "loop", "r", []string{human("1"), human("1")})
	w.u.save(z, z.head(), "loop", "../../x", []string{human("2")})
	w.state(t, z)
	for _, body := range []string{"", "{", "[]", "null", `{"values":[],"checkpoint":{"checkpoint_id":"a"}}`, `{"values":{"messages":7},"checkpoint":{"checkpoint_id":"../x"}}`, strings.Repeat("[", 1<<20)} {
		require.Equal(t, body, string(w.State(t.Context(), w.call, "t1", true, []byte(body))))
		require.Equal(t, body, string(w.History(t.Context(), w.call, "t1", []byte(body))))
		require.Equal(t, body, string(w.Threads(t.Context(), w.call, []byte(body))))
	}
}

// Lists of threads and long histories are bounded as they are by the server itself.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 40 {
		keep := 0
		if n%5 == 4 {
			keep = 2
		}
		w.u.run(x, x.head(), n+1, keep)
	}
	whole := saidIn(w.Threads(t.Context(), w.call, []byte(x.row())))
	require.Contains(t, whole, "h20")
	list := gjson.GetBytes(w.Threads(t.Context(), w.call, []byte("["+x.row()+"]")), "0").Raw
	shown := strings.Fields(people(saidIn([]byte(list))))
	all := strings.Fields(people(whole))
	require.Equal(t, append(all[:1:1], all[len(all)-20:]...), shown)
	full := *w.call
	full.Choice.Full = true
	require.Equal(t, whole, saidIn([]byte(gjson.GetBytes(w.Threads(t.Context(), &full, []byte("["+x.row()+"]")), "0").Raw)))

	raw := []byte(x.history("", 30))
	unbound := gjson.ParseBytes(w.History(t.Context(), &full, x.id, raw)).Array()
	graph := gjson.ParseBytes(raw).Array()
	fits := len(unbound[0].Get("values").Raw) + len(unbound[1].Get("values").Raw)
	for bound, want := range map[int]int{fits - 1: 1, fits: 2, 1: 0} {
		o := apart()
		o.MaxBytes = int64(bound)
		w.overlay = &o
		w.restart(t)
		out, entries, partial := w.Recorder.History(t.Context(), w.call, x.id, raw)
		require.True(t, partial)
		require.Equal(t, want, entries)
		for i, row := range gjson.ParseBytes(out).Array() {
			if i < want {
				require.Equal(t, unbound[i].Raw, row.Raw)
			} else if len(unbound[i].Get("values.messages").Array()) > len(graph[i].Get("values.messages").Array()) {
				require.Equal(t, graph[i].Raw, row.Raw)
			}
		}
	}
}

// The feed shows what a tool said where the log has the text of a Command that old writers stored.
func TestTextOfACommand(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	const stored = `Command(update={'messages': [ToolMessage(content='done', tool_call_id='c1')]})`
	w.u.save(x, nil, "loop", "run", []string{human("h1"), `{"type":"tool","id":"t1","tool_call_id":"c1","content":"` + stored + `"}`})
	w.state(t, x)
	q := eventstore.PageQuery{Thread: x.id, Limit: 10}
	content := func(page *eventstore.Page, err error) string {
		require.NoError(t, err)
		require.Len(t, page.Rows, 2)
		return gjson.GetBytes(page.Rows[1].Content, "content").String()
	}
	require.Equal(t, "done", content(w.Messages(t.Context(), w.call, q)))
	require.Equal(t, stored, content(w.Events(t.Context(), w.call, q)))
}
