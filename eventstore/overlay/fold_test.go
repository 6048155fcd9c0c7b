package overlay_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore/overlay"
)

// jsonOf spells messages as a stream does: other bytes than those that are stored.
func jsonOf(list []msg) string {
	var out []string
	for _, m := range list {
		one := map[string]any{"type": m[0], "id": m[1], "content": m[2], "additional_kwargs": map[string]string{}, "x": nil}
		for i := 3; i+1 < len(m); i += 2 {
			if m[i] == "lc_source" {
				one["additional_kwargs"] = map[string]string{"lc_source": m[i+1]}
			} else {
				one[m[i]] = m[i+1]
			}
		}
		text, err := json.Marshal(one)
		if err != nil {
			panic(err)
		}
		out = append(out, string(text))
	}
	return `{"title":"T","messages":[` + strings.Join(out, ",") + `]}`
}

// Values that are ahead of their checkpoint.
func TestFold(t *testing.T) {
	t.Parallel()
	whole := setup(t)
	whole.save(ms("h1 a1 h2 a2"))
	withSystem := setup(t)
	withSystem.save(ms("s1 h1 a1 h2 a2"))
	half := setup(t).condensed()
	const before = "h1 a1 h2 a2 " + marker + " h3 a3"
	client := func(ids ...string) func(string) bool {
		return func(mid string) bool {
			for _, id := range ids {
				if id == mid {
					return true
				}
			}
			return false
		}
	}
	for _, tt := range []struct {
		name   string
		w      *world
		values string // words
		client func(string) bool
		want   string
	}{
		{name: "the same", w: half, values: "Sum h3 a3", want: before},
		{name: "new messages come after", w: half, values: "Sum h3 a3 h4 a4", want: before + " h4 a4"},
		{name: "new in front", w: half, values: "s9 Sum h3 a3", want: "s9 " + before},
		{name: "condensed now", w: whole, values: "Sum h2 a2 h3", want: "h1 a1 " + marker + " h2 a2 h3"},
		{name: "condensed again", w: half, values: "Sum2 a3 h4", want: "h1 a1 h2 a2 " + marker + " h3 " + marker + "2 a3 h4"},
		{name: "condensed by shape, a summary of another kind", w: whole, values: "h9 h2 a2", want: "h1 a1 summary-marker-h9 h2 a2"},
		{name: "condensed by shape, no summary", w: whole, values: "h2 a2", want: "h1 a1 summary-marker-* h2 a2"},
		{name: "a leading system message stays", w: withSystem, values: "s1 h2 a2", want: "s1 h1 a1 summary-marker-* h2 a2"},
		{name: "removed by the client", w: whole, values: "h2 a2", client: client("h1", "a1"), want: "h2 a2"},
		{name: "a condensed one edited", w: half, values: "Sum h3 a3 h1", want: before},
		{name: "the newest removed", w: whole, values: "h1 a1 h2", want: "h1 a1 h2"},
		{name: "the middle removed", w: whole, values: "h1 a2", want: "h1 a2"},
		{name: "reset by the client", w: half, values: "h9", client: client("__remove_all__"), want: "h9"},
		{name: "reset by a node", w: half, values: "", want: ""},
		{name: "the summary removed by the client", w: half, values: "h3 a3", client: client("Sum"), want: "h3 a3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := tt.w.overlay.Read(tt.w.thread, overlay.Look{On: true, Key: "messages"})
			defer r.Done()
			got, err := r.Values(t.Context(), tt.w.at, json.RawMessage(jsonOf(ms(tt.values))), &overlay.Ahead{Grown: true, ByClient: tt.client, Run: "r1"})
			require.NoError(t, err)
			require.True(t, json.Valid(got), "%s", got)
			require.Equal(t, "T", gjson.GetBytes(got, "title").String())
			if head, tail, some := strings.Cut(tt.want, "*"); some {
				require.Regexp(t, "^"+head+`[-0-9a-f]{36}`+tail+"$", ids(got))
			} else {
				require.Equal(t, tt.want, ids(got))
			}
			if m := gjson.GetBytes(got, `messages.#(id=="summary-marker-Sum2").additional_kwargs.summary_marker`); m.Exists() {
				require.Equal(t, `{"replaced_count":1,"summary":"text of Sum2","run_id":"r1"}`, m.Raw)
			}
		})
	}

	r := half.overlay.Read(half.thread, overlay.Look{On: true, Key: "messages"})
	defer r.Done()
	for _, values := range []string{`{"messages":null}`, `{"__interrupt__":[]}`, `[1]`, `null`, `{"messages":{"id":"x"}}`, `{"messages":[`} {
		got, err := r.Values(t.Context(), half.at, json.RawMessage(values), &overlay.Ahead{Grown: true})
		require.NoError(t, err)
		require.Equal(t, values, string(got))
	}
	got, err := r.Values(t.Context(), half.at, json.RawMessage(jsonOf([]msg{{"human", "Sum", "x", "lc_source", "summarization"}, {"human", "h3", "edited"}, {"ai", "a3", "x"}})), &overlay.Ahead{Grown: true})
	require.NoError(t, err)
	require.Equal(t, "edited", gjson.GetBytes(got, "messages.5.content").String(), "revised in place")
}

// The id of a marker that is folded is that of the one which is recorded afterwards.
func TestFoldAgreesWithRecording(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"Sum h2 a2 h3", "h2 a2", "h9 h2 a2", "a2", "Sum"} {
		w := setup(t)
		w.save(ms("h1 a1 h2 a2"))
		r := w.overlay.Read(w.thread, overlay.Look{On: true, Key: "messages"})
		folded, err := r.Values(t.Context(), w.at, json.RawMessage(jsonOf(ms(words))), &overlay.Ahead{Grown: true, Run: "run"})
		require.NoError(t, err)
		r.Done()
		w.save(ms(words))
		require.Equal(t, ids(w.state(t.Context(), "")), ids(folded), "%q", words)
	}
}

// Random texts do not break what finds its way in JSON without decoding it.
func FuzzClean(f *testing.F) {
	for _, seed := range []string{`{"messages":[{"id":"h1"}]}`, `[["messages",{"id":1}]]`, `{"messages":[{"id":"summary-marker-"}]`, `{"a":"\"`, `[[[{`, `{"messages":[,]}`, `{"id":}`} {
		f.Add(seed)
	}
	w := setup(f).condensed()
	f.Fuzz(func(t *testing.T, sent string) {
		got, err := w.overlay.Clean(t.Context(), "g", w.thread, w.at, json.RawMessage(sent))
		require.NoError(t, err)
		if json.Valid([]byte(sent)) {
			require.True(t, json.Valid(got.JSON), "%s became %s", sent, got.JSON)
		}
		r := w.overlay.Read(w.thread, overlay.Look{On: true, Key: "messages"})
		defer r.Done()
		shown, err := r.Values(t.Context(), w.at, json.RawMessage(sent), &overlay.Ahead{Grown: true})
		require.NoError(t, err)
		if json.Valid([]byte(sent)) {
			require.True(t, json.Valid(shown), "%s became %s", sent, shown)
		}
	})
}
