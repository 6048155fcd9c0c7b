package overlay_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/thread"
)

// interrupted is a thread whose last answer was streamed in part, and asks for a tool: h1 a1 h2 p.
func (w *world) interrupted() *world {
	w.t.Helper()
	w.save(ms("h1 a1"))
	w.save(ms("h1 a1 h2"))
	require.NoError(w.t, w.rows.Threads().Write(w.t.Context(), func(tx thread.Tx) error {
		_, err := eventstore.RecordPartial(tx.(eventstore.Tx), w.thread, w.at, "run", time.Now(), []eventstore.Partial{{
			ID: "p", Message: []byte(`{"content":"It is rai","additional_kwargs":{},"type":"ai","id":"p","tool_calls":[{"name":"look","args":{},"id":"call","type":"tool_call"}]}`),
		}})
		return err
	}))
	return w
}

// Everything that shows a transcript shows partial answers, but the stream of their own run, which has their words.
func TestPartialAnswersAreShown(t *testing.T) {
	t.Parallel()
	w := setup(t).interrupted()
	require.Equal(t, "h1 a1 h2 p", ids(w.state(t.Context(), "")))
	require.Equal(t, "h1 a1 h2", ids(w.state(choose(t.Context(), false), "")))
	view, err := w.threads.Get(t.Context(), w.thread)
	require.NoError(t, err)
	require.Equal(t, "h1 a1 h2 p", ids(view.Values))
	history, err := w.threads.History(t.Context(), thread.HistoryQuery{Thread: w.thread, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, "h1 a1 h2 p", ids(history[0].Values))
	require.Equal(t, "h1 a1", ids(history[1].Values))

	values := w.state(choose(t.Context(), false), "")
	shown := func(place overlay.Place) string {
		r := w.overlay.Read(w.thread, w.overlay.Look(t.Context(), "g", place))
		defer r.Done()
		r.Streams("run")
		now, err := r.Values(t.Context(), w.at, values, nil)
		require.NoError(t, err)
		return ids(now)
	}
	require.Equal(t, "h1 a1 h2", shown(overlay.Stream))
	require.Equal(t, "h1 a1 h2 p", shown(overlay.Wait))

	w.save(ms("h1 a1 h2 h3"))
	require.Equal(t, "h1 a1 h2 p h3", ids(w.state(t.Context(), "")))
}

// The model does not see a partial answer, also when a client sends it back, or the result of a tool that it asks for.
func TestPartialAnswersThatAreSentBack(t *testing.T) {
	t.Parallel()
	w := setup(t).interrupted()
	const (
		h9     = `{"role":"user","content":"new"}`
		tool   = `{"type":"tool","id":"t","content":"cancelled","tool_call_id":"call"}`
		other  = `{"type":"tool","id":"t","content":"cancelled","tool_call_id":"other"}`
		edited = `{"type":"ai","id":"p","content":"It is sunny"}`
	)
	for sent, want := range map[string]string{
		`{"type":"ai","id":"p","content":"It is rai"}`:                             ``,
		`{"type":"ai","id":"p","content":"It is rai","additional_kwargs":{"x":1}}`: ``,
		`{"type":"AIMessageChunk","id":"p","content":"It is","tool_calls":[]}`:     ``, // who left earlier
		`{"type":"ai","id":"p","content":[{"type":"text","text":"It is r"}]}`:      ``,
		edited: edited,
		tool:   ``,
		other:  other,
	} {
		got, err := w.overlay.Clean(t.Context(), "g", w.thread, w.at, json.RawMessage(`{"messages":[`+sent+`,`+h9+`]}`))
		require.NoError(t, err)
		if want != "" {
			want += ","
		}
		require.Equal(t, `{"messages":[`+want+h9+`]}`, string(got.JSON), "%s", sent)
	}
	got, err := w.overlay.Clean(t.Context(), "g", w.thread, w.at, json.RawMessage(`{"messages":[{"type":"remove","id":"p"}]}`))
	require.NoError(t, err)
	require.Equal(t, `{"messages":[]}`, string(got.JSON))
	require.Equal(t, []string{"p"}, got.Deleted)
}
