package record_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/proxy"
)

// envelope is an event of the event-streaming protocol. Its messages are abridged as LangGraph Server abridges them.
func envelope(method, namespace, data string) []byte {
	return fmt.Appendf(nil, `{"type":"event","event_id":"1-0","seq":1,"method":%q,"params":{"namespace":%s,"timestamp":1,"data":%s}}`, method, namespace, data)
}

func abridged(messages []string) string {
	out := make([]string, len(messages))
	for i, m := range messages {
		o := jsonobj.Of([]byte(m))
		for _, key := range []string{"additional_kwargs", "response_metadata", "name"} {
			o.Delete(key)
		}
		out[i] = string(o.JSON())
	}
	return `{"messages":[` + strings.Join(out, ",") + `]}`
}

func watched(t *testing.T, run proxy.Run, messages []string) string {
	t.Helper()
	out, fate := run.Event(t.Context(), "values", envelope("values", "[]", abridged(messages)))
	require.Equal(t, overlay.Shown, fate)
	require.True(t, gjson.ValidBytes(out), string(out))
	require.EqualValues(t, 1, gjson.GetBytes(out, "seq").Int())
	return said(gjson.GetBytes(out, "params.data.messages"))
}

func running(t *testing.T, run proxy.Run) {
	t.Helper()
	data := envelope("lifecycle", "[]", `{"event":"running","graph_name":"g"}`)
	out, fate := run.Event(t.Context(), "lifecycle", data)
	require.Equal(t, overlay.Shown, fate)
	require.Equal(t, string(data), string(out))
}

// A replay shows each values as the state at its checkpoint does, from wherever it begins; what a new run says continues it.
func TestWatchShowsWhatStatesShow(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 5 {
		w.u.run(x, x.head(), n+1, 2)
	}
	want := make([]string, len(x.checkpoints))
	for i, c := range x.checkpoints {
		want[i] = saidIn(w.State(t.Context(), w.call, x.id, false, []byte(x.state(c, false))))
	}
	require.Contains(t, want[len(want)-1], "h1 (1) a1")
	for from := range x.checkpoints {
		w.u.requests()
		run := w.Watch(t.Context(), w.call, x.id)
		for i, c := range x.checkpoints[from:] {
			if i == 0 || c.Run != x.checkpoints[from+i-1].Run {
				running(t, run)
			}
			require.Equal(t, want[from+i], watched(t, run, c.Messages), "from %d at %d", from, from+i)
		}
		require.Len(t, w.u.requests(), 1, "the upstream is asked for its head")
		head := x.head().Messages
		running(t, run)
		grown := append(head[:len(head):len(head)], human("h9"))
		require.Equal(t, want[len(want)-1]+" h9", watched(t, run, grown))
		require.Equal(t, want[len(want)-1]+" h9 a9", watched(t, run, append(grown[:len(grown):len(grown)], ai("a9"))))
		run.End(t.Context())
	}
}

// Other events, other namespaces and what makes no sense pass as they are, as everything does without the overlay.
func TestWatchPasses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	for n := range 3 {
		w.u.run(x, x.head(), n+1, 2)
	}
	condensed := abridged(x.head().Messages)
	run := w.Watch(t.Context(), w.call, x.id)
	for _, e := range []struct {
		name string
		data []byte
	}{
		{"updates", envelope("updates", "[]", condensed)},
		{"values", envelope("values", `["child:1"]`, condensed)},
		{"values", envelope("values", `[]`, `{"n":1}`)},
		{"values", envelope("values", `[]`, `{"messages":"none"}`)},
		{"values", []byte(`{"params":{"data":` + condensed + `}}`)},
		{"values", []byte(`{"params":{"namespace":[]}}`)},
		{"values", []byte(`{"params":[]}`)},
		{"values", []byte(`{"params":`)},
		{"lifecycle", envelope("lifecycle", "[]", "null")},
	} {
		out, fate := run.Event(t.Context(), e.name, e.data)
		require.Equal(t, overlay.Shown, fate)
		require.Equal(t, string(e.data), string(out))
	}
	require.NotEqual(t, people(saidIn([]byte(`{"values":`+condensed+`}`))), watched(t, run, x.head().Messages))
	run.End(t.Context())

	off := false
	call := *w.call
	call.Choice = overlay.Choice{Overlay: &off}
	run = w.Watch(t.Context(), &call, x.id)
	data := envelope("values", "[]", condensed)
	out, _ := run.Event(t.Context(), "values", data)
	require.Equal(t, string(data), string(out))
	run.End(t.Context())

	run = w.Watch(t.Context(), w.call, id.Thread("nowhere"))
	out, _ = run.Event(t.Context(), "values", data)
	require.Equal(t, string(data), string(out))
	run.End(t.Context())
}
