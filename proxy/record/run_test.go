package record_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore/overlay"
	"understudy/proxy"
)

// values returns what a client sees of root values.
func values(t *testing.T, run proxy.Run, messages ...string) string {
	t.Helper()
	out, fate := run.Event(t.Context(), "values", []byte(`{"messages":[`+strings.Join(messages, ",")+`],"n":1}`))
	require.Equal(t, overlay.Shown, fate)
	require.True(t, gjson.ValidBytes(out), string(out))
	require.EqualValues(t, 1, gjson.GetBytes(out, "n").Int())
	return said(gjson.GetBytes(out, "messages"))
}

func begin(t *testing.T, w *world, x *talk, body string) proxy.Run {
	t.Helper()
	run, out := w.Begin(t.Context(), w.call, x.id, []byte(body))
	require.Equal(t, body, string(out))
	return run
}

func metadata(t *testing.T, run proxy.Run, rid string) {
	t.Helper()
	_, fate := run.Event(t.Context(), "metadata", fmt.Appendf(nil, `{"run_id":%q,"attempt":1}`, rid))
	require.Equal(t, overlay.Shown, fate)
}

func TestStreamOfCondensedThread(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 3 {
		w.u.run(x, x.head(), n+1, 2)
	}
	before := x.head().Messages
	run := begin(t, w, x, `{"assistant_id":"g","stream_mode":["values"],"input":{"messages":[{"role":"user","content":"x"}]}}`)
	metadata(t, run, "r9")
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 a3 h4", values(t, run, append(before[:len(before):len(before)], human("h4"))...))
	// It condenses a second time, and what it says itself too.
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 a3 (3) h4", values(t, run, summary("s8"), human("h4")))
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 a3 (3) h4 a4", values(t, run, summary("s8"), human("h4"), ai("a4")))
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 a3 (3) h4 (1) a4", values(t, run, summary("s9"), ai("a4")))
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 a3 (3) h4 (1) a4", values(t, run, summary("s9"), ai("a4")))
	run.End(t.Context())
}

func TestStreamOfNewThread(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	run := begin(t, w, x, `{"assistant_id":"g","input":{"messages":[{"role":"user","content":"x"}]}}`)
	metadata(t, run, "r1")
	require.Empty(t, values(t, run))
	require.Equal(t, "h1", values(t, run, human("h1")))
	require.Equal(t, "h1 a1", values(t, run, human("h1"), ai("a1")))
	require.Equal(t, "h1 a1 a2", values(t, run, human("h1"), ai("a1"), ai("a2")))
	require.Equal(t, "h1 a1 (2) a2", values(t, run, summary("s1"), ai("a2")))
	require.Equal(t, "h1 a1 (2) a2 a3", values(t, run, summary("s1"), ai("a2"), ai("a3")))
	run.End(t.Context())
}

// Where nothing is condensed the same bytes pass, and the upstream is asked once.
func TestStreamPasses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	w.state(t, x)
	w.u.requests()
	run := begin(t, w, x, `{"assistant_id":"g","stream_mode":"values","input":null}`)
	metadata(t, run, "r9")
	list := append([]string{}, x.head().Messages...)
	for n := range 5 {
		data := []byte(`{"messages":[` + strings.Join(list, ",") + `]}`)
		out, fate := run.Event(t.Context(), "values", data)
		require.Equal(t, overlay.Shown, fate)
		require.Same(t, &data[0], &out[0])
		list = append(list, ai(fmt.Sprint(n)))
	}
	require.Equal(t, []string{"GET /threads/t1/state"}, w.u.requests())
	for _, event := range []string{"updates", "custom", "values|child:1", "error", "messages"} {
		out, fate := run.Event(t.Context(), event, []byte(`not json`))
		require.Equal(t, overlay.Shown, fate)
		require.Equal(t, "not json", string(out))
	}
	run.End(t.Context())
}

func TestSummarizerIsLeftOut(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	event := func(run proxy.Run, event, data string) overlay.Fate {
		_, fate := run.Event(t.Context(), event, []byte(data))
		return fate
	}
	summarizers := `{"lc_source":"summarization"}`
	run := begin(t, w, x, `{"assistant_id":"g","stream_mode":["messages-tuple"],"input":null}`)
	metadata(t, run, "r9")
	for _, name := range []string{"messages", "messages|tools:1"} {
		require.Equal(t, overlay.Shown, event(run, name, `[{"type":"AIMessageChunk","content":"w","id":"1"},{"langgraph_node":"model"}]`))
		require.Equal(t, overlay.Hidden, event(run, name, `[{"type":"AIMessageChunk","content":"w","id":"2"},`+summarizers+`]`))
		require.Equal(t, overlay.Hidden, event(run, name, `[`+summary("s")+`,{}]`))
	}
	require.Equal(t, overlay.Hidden, event(run, "messages", `[{"type":"remove","id":"h1","content":""},{}]`), "the oldest")
	require.Equal(t, overlay.Shown, event(run, "messages", `[{"type":"remove","id":"other","content":""},{}]`))
	require.Equal(t, overlay.Hidden, event(run, "messages/metadata", `{"x":{"metadata":`+summarizers+`}}`))
	require.Equal(t, overlay.Hidden, event(run, "messages/partial", `[{"type":"ai","content":"w","id":"x"}]`))
	require.Equal(t, overlay.Held, event(run, "messages/metadata", `{"a":{"metadata":{}}}`))
	require.Equal(t, overlay.Shown, event(run, "messages/partial", `[{"type":"ai","content":"w","id":"a"}]`))
	require.Equal(t, overlay.Held, event(run, "messages/metadata", `{"s":{"metadata":{}}}`))
	require.Equal(t, overlay.HiddenBoth, event(run, "messages/complete", `[`+summary("s")+`]`))
	require.Equal(t, overlay.Held, event(run, "messages/metadata", `{"b":{"metadata":{}}}`))
	require.Equal(t, overlay.Hidden, event(run, "messages/complete", `[`+summary("s")+`]`), "of another message")
	require.Equal(t, overlay.Hidden, event(run, "events", `{"event":"on_chat_model_stream","data":{},"metadata":`+summarizers+`}`))
	require.Equal(t, overlay.Shown, event(run, "events", `{"event":"on_chain_end","data":{"output":`+summary("s")+`},"metadata":{}}`))
	run.End(t.Context())
	off := false
	w.call.Choice = overlay.Choice{Overlay: &off}
	run = begin(t, w, x, `{"assistant_id":"g","input":null}`)
	require.Equal(t, overlay.Shown, event(run, "messages", `[`+summary("s")+`,{}]`))
	run.End(t.Context())
}

// An update that condenses shows what is new only: by the values of the stream, or by the upstream's head, before the step or after it.
func TestUpdatesAreShown(t *testing.T) {
	t.Parallel()
	update := []byte(`{"x":{"messages":[{"type":"remove","id":"__remove_all__","content":""},` + summary("s1") + `,` + human("h2") + `,` + ai("a9") + `]}}`)
	want := `{"x":{"messages":[` + ai("a9") + `]}}`
	reset := []byte(`{"x":{"messages":[{"type":"remove","id":"__remove_all__","content":""}]}}`)
	for _, how := range []string{"values", "before", "after"} {
		w := setup(t)
		x := w.u.thread("t1")
		c := w.u.save(x, nil, "loop", "r1", []string{human("h1"), ai("a1")})
		run := begin(t, w, x, `{"assistant_id":"g","stream_mode":["updates"],"input":null}`)
		metadata(t, run, "r9")
		c = w.u.save(x, c, "loop", "r9", append(c.Messages[:2:2], human("h2")))
		switch how {
		case "values":
			require.Equal(t, "h1 a1 h2", values(t, run, c.Messages...))
		case "after":
			w.u.save(x, c, "loop", "r9", []string{summary("s1"), human("h2"), ai("a9")})
		}
		for _, event := range []string{"updates|child:1", "custom"} {
			out, _ := run.Event(t.Context(), event, update)
			require.Equal(t, string(update), string(out))
		}
		out, fate := run.Event(t.Context(), "updates", update)
		require.Equal(t, overlay.Shown, fate)
		require.Equal(t, want, string(out), how)
		out, _ = run.Event(t.Context(), "updates", reset)
		require.Equal(t, string(reset), string(out), how)
		run.End(t.Context())
	}
}

// A run that saves at its end only said and condensed something in between: that is in its stream alone.
func TestExitIsRecordedFromItsStream(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	w.state(t, x)
	run := begin(t, w, x, `{"assistant_id":"g","durability":"exit","input":{"messages":[{"role":"user","content":"x"}]}}`)
	metadata(t, run, "r9")
	values(t, run, human("h1"), ai("a1"), human("h2"))
	values(t, run, human("h1"), ai("a1"), human("h2"), ai("a2"))
	values(t, run, human("h1"), ai("a1"), human("h2"), ai("a2"), ai("a3"))
	require.Equal(t, "h1 a1 h2 a2 (4) a3", values(t, run, summary("s1"), ai("a3")))
	require.Equal(t, "h1 a1 h2 a2 (4) a3 a4", values(t, run, summary("s1"), ai("a3"), ai("a4")))
	w.u.save(x, x.head(), "loop", "r9", []string{summary("s1"), ai("a3"), ai("a4")})
	run.End(t.Context())
	require.Equal(t, "h1 a1 h2 a2 (4) a3 a4", saidIn(w.state(t, x)))
	w.u.run(x, x.head(), 5, 0)
	require.Equal(t, "h1 a1 h2 a2 (4) a3 a4 h5 a5", saidIn(w.state(t, x)))
	require.Equal(t, "h1 a1 h2 a2 a3 (4) a4 h5 a5", w.page(t, x))
}

func TestResultIsShown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 3 {
		w.u.run(x, x.head(), n+1, 2)
	}
	run := begin(t, w, x, `{"assistant_id":"g","input":{}}`)
	c := w.u.run(x, x.head(), 4, 2)
	run.Created(t.Context(), []byte(`{"run_id":"`+c.Run+`"}`))
	out := run.Result(t.Context(), []byte(x.values(c.Messages, `,"x":1`)))
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 (2) a3 h4 a4", said(gjson.GetBytes(out, "messages")))
	require.EqualValues(t, 1, gjson.GetBytes(out, "x").Int())
	run.End(t.Context())
	// With values that no checkpoint has: the output of a task beside one that waits.
	run = w.Join(t.Context(), w.call, x.id, "")
	out = run.Result(t.Context(), []byte(x.values(append(c.Messages[:len(c.Messages):len(c.Messages)], ai("z")), "")))
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 (2) a3 h4 a4 z", said(gjson.GetBytes(out, "messages")))
	for _, body := range []string{"", "{", "null", "[]", `{"messages":7}`, `{"__interrupt__":[]}`} {
		require.Equal(t, body, string(run.Result(t.Context(), []byte(body))))
	}
	run.End(t.Context())
}

func TestEchoesAreDropped(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 3 {
		w.u.run(x, x.head(), n+1, 2)
	}
	shown := gjson.GetBytes(w.state(t, x), "values.messages").Raw
	body := `{"assistant_id":"g", "input":{"messages":` + strings.TrimSuffix(shown, "]") + `,{"role":"user","content":"new"}]},"x":1}`
	run, out := w.Begin(t.Context(), w.call, x.id, []byte(body))
	require.Equal(t, "a2 h3 a3 ", said(gjson.GetBytes(out, "input.messages")))
	require.EqualValues(t, 1, gjson.GetBytes(out, "x").Int())
	run.End(t.Context())

	// A condensed message is deleted: the graph hears nothing, the transcript does.
	run, out = w.Begin(t.Context(), w.call, x.id, []byte(`{"assistant_id":"g","input":{"messages":[{"type":"remove","id":"h1"},{"role":"user","content":"new"}]}}`))
	require.Len(t, gjson.GetBytes(out, "input.messages").Array(), 1)
	run.End(t.Context())
	w.u.run(x, x.head(), 4, 0)
	require.Equal(t, "h1 (1) a1 h2 (2) a2 h3 a3 h4 a4", saidIn(w.state(t, x)), "the upstream refused the run")
	run, _ = w.Begin(t.Context(), w.call, x.id, []byte(`{"assistant_id":"g","input":{"messages":[{"type":"remove","id":"h1"},{"role":"user","content":"new"}]}}`))
	run.Created(t.Context(), []byte(`{"run_id":"r7"}`))
	run.End(t.Context())
	w.restart(t)
	w.u.run(x, x.head(), 5, 0)
	require.Equal(t, "(1) a1 h2 (2) a2 h3 a3 h4 a4 h5 a5", saidIn(w.state(t, x)))

	u, out := w.Update(t.Context(), w.call, x.id, []byte(`{"values":{"messages":[{"type":"remove","id":"a1"},`+human("h2")+`,`+ai("more")+`]}}`))
	require.Equal(t, "more", said(gjson.GetBytes(out, "values.messages")))
	c := w.u.save(x, x.head(), "update", "", append(x.head().Messages[:len(x.head().Messages):len(x.head().Messages)], ai("more")))
	u.Done(t.Context(), fmt.Appendf(nil, `{"checkpoint_id":%q}`, c.ID))
	require.Equal(t, "(1) h2 (2) a2 h3 a3 h4 a4 h5 a5 more", saidIn(w.state(t, x)))
}

func TestBodiesWithNothingToDropStay(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	w.state(t, x)
	w.u.requests()
	for _, body := range []string{
		``, `{`, `[]`, `null`, `{"assistant_id":7,"input":[1],"command":[],"checkpoint":"x"}`,
		`{"assistant_id":"g","input":{"messages":[{"role":"user","content":"x"}]}}`,
	} {
		run, out := w.Begin(t.Context(), w.call, x.id, []byte(body))
		require.Equal(t, body, string(out))
		run.End(t.Context())
		u, out := w.Update(t.Context(), w.call, x.id, []byte(body))
		require.Equal(t, body, string(out))
		u.Done(t.Context(), nil)
	}
	require.Empty(t, w.u.requests())
	body := ` {"assistant_id":"g","input":{"messages":[{"role":"user","content":"x","id":"1"}]}} `
	_, out := w.Begin(t.Context(), w.call, x.id, []byte(body))
	require.Equal(t, body, string(out))
	require.Equal(t, []string{"GET /threads/t1/state"}, w.u.requests())
	_, out = w.Begin(t.Context(), w.call, "", []byte(body))
	require.Equal(t, body, string(out))
}

// What a run that was joined was called with decides who removed its messages. An upstream that does not say so is asked once, however many
// messages leave the list: each question may take as long as a reader can wait.
func TestJoinedRunAsksOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 10 {
		w.u.run(x, x.head(), n+1, 0)
	}
	w.state(t, x) // it is recorded
	run := w.Join(t.Context(), w.call, x.id, "r9")
	metadata(t, run, "r9")
	w.u.requests()
	w.u.fails = func(_, path string) (int, error) {
		if strings.HasSuffix(path, "/runs/r9") {
			return http.StatusInternalServerError, nil
		}
		return 0, nil
	}
	require.Contains(t, values(t, run, summary("s9"), human("h11")), "h1 a1")
	require.Contains(t, values(t, run, summary("s10"), human("h12")), "h1 a1")
	asked := slices.DeleteFunc(w.u.requests(), func(path string) bool { return !strings.HasSuffix(path, "/runs/r9") })
	require.Len(t, asked, 1)
	run.End(t.Context())
}
