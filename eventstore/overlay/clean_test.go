package overlay_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/thread"
)

// What clients send back on h1 a1 h2 a2 [marker] h3 a3, of which the model has Sum h3 a3.
func TestClean(t *testing.T) {
	t.Parallel()
	w := setup(t).condensed()
	const (
		h9       = `{"role":"user","content":"new"}`
		system   = `{"type":"system","id":"` + marker + `","content":"text of Sum"}`
		bare     = `{"type":"summary_marker","id":"` + marker + `"}`
		h1       = `{"type":"human","id":"h1","content":"text of h1"}`
		a1       = `{"id":"a1","content":"text of a1","type":"ai","additional_kwargs":{},"tool_calls":[],"example":false}`
		h3       = `{"type":"human","id":"h3","content":"text of h3"}`
		edited   = `{"type":"human","id":"h1","content":"edited"}`
		rmAll    = `{"type":"remove","id":"__remove_all__","content":""}`
		rmH1     = `{"type":"remove","id":"h1","content":""}`
		rmH3     = `{"type":"remove","id":"h3","content":""}`
		rmMarker = `{"type":"remove","id":"` + marker + `","content":""}`
		rmSum    = `{"type":"remove","id":"Sum","content":""}`
		asObject = `{"lc":1,"type":"constructor","id":["langchain_core","messages","RemoveMessage"],"kwargs":{"id":"h1"}}`
		human    = `{"lc":1,"type":"constructor","id":["langchain_core","messages","HumanMessage"],"kwargs":{"id":"h1","content":"text of h1"}}`
	)
	for _, tt := range []struct {
		name    string
		sent    string
		want    string // "": the same bytes
		deleted []string
	}{
		{name: "nothing to drop", sent: `{"messages": [` + h3 + ` , ` + h9 + `], "title":"x"}`},
		{name: "markers", sent: `{"messages":[` + system + `,` + bare + `,` + h9 + `],"title":"x"}`, want: `{"messages":[` + h9 + `],"title":"x"}`},
		{name: "a marker by its keywords", sent: `{"messages":[{"type":"system","id":"x","content":"","additional_kwargs":{"summary_marker":{}}}]}`, want: `{"messages":[]}`},
		{name: "a condensed message that carries a marker", sent: `{"messages":[` + carrying(h1) + `,` + h9 + `]}`, want: `{"messages":[` + h9 + `]}`},
		{name: "a message that the model has carries a marker", sent: `{"messages":[` + carrying(h3) + `]}`, want: `{"messages":[` + bared(h3) + `]}`},
		{name: "one message that carries a marker", sent: `{"messages":` + carrying(h3) + `}`, want: `{"messages":[` + bared(h3) + `]}`},
		{name: "a system message that carries a marker", sent: `{"messages":[{"type":"system","id":"s7","content":"be kind","additional_kwargs":{"summary_marker":{"summary":"x"}}}]}`, want: `{"messages":[{"type":"system","id":"s7","content":"be kind","additional_kwargs":{}}]}`},
		{name: "a message of the model with the words of its marker", sent: `{"messages":[{"type":"system","id":"h3","content":"x","additional_kwargs":{"summary_marker":{"summary":"x"}}}]}`, want: `{"messages":[{"type":"system","id":"h3","content":"x","additional_kwargs":{}}]}`},
		{name: "a new message that carries a marker, without id", sent: `{"messages":[{"role":"user","content":"x","additional_kwargs":{"a":1,"summary_marker":{"summary":"x"}}}]}`, want: `{"messages":[{"role":"user","content":"x","additional_kwargs":{"a":1}}]}`},
		{name: "as LangChain serialises, with a marker", sent: `{"messages":[` + strings.Replace(human, `"id":"h1"`, `"id":"h5","additional_kwargs":{"summary_marker":{}}`, 1) + `]}`, want: `{"messages":[` + strings.Replace(human, `"id":"h1"`, `"id":"h5","additional_kwargs":{}`, 1) + `]}`},
		{name: "a list of its own whose messages carry markers", sent: `{"messages":[` + rmAll + `,` + carrying(h1) + `]}`, want: `{"messages":[` + rmAll + `,` + bared(h1) + `]}`},
		{name: "condensed and unchanged", sent: `{"messages":[` + h1 + `,` + a1 + `,` + system + `,` + h3 + `,` + h9 + `]}`, want: `{"messages":[` + h3 + `,` + h9 + `]}`},
		{name: "as LangChain serialises", sent: `{"messages":[` + human + `,` + h9 + `]}`, want: `{"messages":[` + h9 + `]}`},
		{name: "condensed and edited", sent: `{"messages":[` + edited + `]}`},
		{name: "one message", sent: `{"messages":` + h1 + `}`, want: `{"messages":[]}`},
		{name: "one new message", sent: `{"messages":` + edited + `}`},
		{name: "a condensed message is deleted", sent: `{"messages":[` + rmH1 + `,` + h9 + `]}`, want: `{"messages":[` + h9 + `]}`, deleted: []string{"h1"}},
		{name: "deleted as LangChain serialises", sent: `{"messages":[` + asObject + `]}`, want: `{"messages":[]}`, deleted: []string{"h1"}},
		{name: "a message that the model has is deleted", sent: `{"messages":[` + rmH3 + `]}`},
		{name: "the summary is deleted", sent: `{"messages":[` + rmSum + `]}`},
		{name: "the marker is deleted", sent: `{"messages":[` + rmMarker + `]}`, want: `{"messages":[` + rmSum + `]}`},
		{name: "everything is deleted", sent: `{"messages":[` + rmAll + `]}`},
		{name: "a list of its own", sent: `{"messages":[` + rmAll + `,` + h1 + `,` + system + `,` + h3 + `]}`, want: `{"messages":[` + rmAll + `,` + h1 + `,` + h3 + `]}`},
		{name: "list of updates", sent: `[{"messages":[` + h1 + `]},{"title":"x"}]`, want: `[{"messages":[]},{"title":"x"}]`},
		{name: "pairs", sent: `[["title","x"],["messages",[` + h1 + `,` + h9 + `]]]`, want: `[["title","x"],["messages",[` + h9 + `]]]`},
		{name: "other channels", sent: `{"notes":[` + h1 + `]}`},
		{name: "no object", sent: `"id"`},
		{name: "null", sent: `null`},
		{name: "messages that are none", sent: `{"messages":[1,"id",null,[` + h1 + `]]}`},
		{name: "what is no JSON", sent: `{"messages":[{"id"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := w.overlay.Clean(t.Context(), "g", w.thread, w.at, json.RawMessage(tt.sent))
			require.NoError(t, err)
			if tt.want == "" {
				tt.want = tt.sent
			}
			require.Equal(t, tt.want, string(got.JSON))
			require.Equal(t, tt.deleted, got.Deleted)

			command := `{"resume":1, "update":` + tt.sent + `}`
			if json.Valid([]byte(tt.sent)) {
				got, err = w.overlay.CleanCommand(t.Context(), "g", w.thread, w.at, json.RawMessage(command))
				require.NoError(t, err)
				require.Equal(t, `{"resume":1, "update":`+tt.want+`}`, string(got.JSON))
				require.Equal(t, tt.deleted, got.Deleted)
			}
		})
	}
	got, err := w.overlay.Clean(t.Context(), "g", w.thread, "", json.RawMessage(`{"messages":[`+system+`,`+h1+`]}`))
	require.NoError(t, err)
	require.Equal(t, `{"messages":[`+h1+`]}`, string(got.JSON), "on a new thread only markers are dropped")
	same, err := w.overlay.CleanCommand(t.Context(), "g", w.thread, w.at, nil)
	require.NoError(t, err)
	require.Nil(t, same.JSON)
}

// A summary that is no message has no id: deleting its marker deletes what it stands for.
func TestCleanMarkerWithoutSummary(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.save(ms("h1 a1 h2 a2"))
	w.save(ms("h2 a2"))
	values := w.state(t.Context(), "")
	const mark = "summary-marker-" // and a uuid of the last condensed
	require.Regexp(t, `^h1 a1 `+mark+`\S+ h2 a2$`, ids(values))
	id := string(values[indexOf(values, mark):][:len(mark)+36])
	got, err := w.overlay.Clean(t.Context(), "g", w.thread, w.at, json.RawMessage(`{"messages":[{"type":"remove","id":"`+id+`"}]}`))
	require.NoError(t, err)
	require.Equal(t, `{"messages":[]}`, string(got.JSON))
	require.Equal(t, []string{"h1", "a1"}, got.Deleted)
}

func indexOf(b []byte, part string) int {
	for i := range b {
		if len(b)-i >= len(part) && string(b[i:i+len(part)]) == part {
			return i
		}
	}
	return -1
}

// A condensed message that a client deletes goes from the checkpoint that follows on, and the graph hears nothing of it.
func TestDeleteCondensed(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{true, false} {
		w := setup(t).condensed()
		before := w.at
		ctx := choose(t.Context(), read)
		_, err := w.threads.UpdateState(ctx, thread.Place{Key: checkpointer.Key{Thread: w.thread}}, [][]graph.StateUpdate{{
			{Values: json.RawMessage(`{"messages":[{"type":"remove","id":"a1"},{"type":"remove","id":"h2"}]}`)},
		}})
		require.NoError(t, err)
		require.Equal(t, []json.RawMessage{json.RawMessage(`{"messages":[]}`)}, w.updated)
		require.Equal(t, "h1 a2 "+marker+" h3 a3", ids(w.state(t.Context(), "")))
		require.Equal(t, "h1 a1 h2 a2 "+marker+" h3 a3", ids(w.state(t.Context(), before)), "it was there then")
		require.Equal(t, "Sum h3 a3", ids(w.state(choose(t.Context(), false), "")))
	}
}

// Deleting the summary, or everything, takes along what was condensed; a list of its own is what the client says.
func TestDeleteSummary(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{"h3 a3": "h3 a3", "": "", "h9": "h9", "h1 a1 h3 a3": "h1 a1 h3 a3"} {
		w := setup(t).condensed()
		w.put(w.next("update", "", ms(words)))
		require.Equal(t, want, ids(w.state(t.Context(), "")), "%q", words)
	}
}

// A message without id comes back with the one that it is shown with. The graph gets it as it has it.
func TestCleanNameless(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.save([]msg{{"human", "h1", "x"}, {"ai", "", "y"}})
	shown := gjson.GetBytes(w.state(t.Context(), ""), "messages.1").Raw
	mid := gjson.Get(shown, "id").String()
	require.NotEmpty(t, mid)
	for sent, want := range map[string]string{
		shown:                                  strings.Replace(shown, `"`+mid+`"`, "null", 1),
		strings.Replace(shown, `y`, `z`, 1):    strings.Replace(shown, `y`, `z`, 1),
		`{"type":"remove","id":"` + mid + `"}`: `{"type":"remove","id":"` + mid + `"}`,
	} {
		got, err := w.overlay.Clean(t.Context(), "g", w.thread, w.at, json.RawMessage(`{"messages":[`+sent+`]}`))
		require.NoError(t, err)
		require.Equal(t, `{"messages":[`+want+`]}`, string(got.JSON))
	}
}

// carrying returns a message as it is shown with a marker attached, and bared the same without.
func carrying(message string) string {
	return strings.TrimSuffix(message, "}") + `,"additional_kwargs":{"summary_marker":{"replaced_count":4,"summary":"x","run_id":null}}}`
}

func bared(message string) string {
	return strings.TrimSuffix(message, "}") + `,"additional_kwargs":{}}`
}
