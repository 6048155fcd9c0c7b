package overlay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/checkpointer/saver"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonscan"
	"understudy/internal/talktest"
	"understudy/thread"
)

// A conversation looks the same live as it does once it is recorded, at every step: folded on the checkpoint before, and followed through
// the whole run.
func TestLiveIsRecorded(t *testing.T) {
	t.Parallel()
	for shard := range uint64(4) {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			for seed := shard * 10000; seed < shard*10000+60; seed++ {
				liveIsRecorded(t, w, talktest.New(talktest.Random(seed), 14), fmt.Sprint("seed ", seed))
			}
		})
	}
}

// Seeds whose conversations once looked different live, recorded or sent back.
func TestLiveIsRecordedAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, seed := range []uint64{
		20255, // a nameless system message has the words of the summary that is attached to it
		22987, // a summary comes back when nothing is left of what it stood for
	} {
		liveIsRecorded(t, w, talktest.New(talktest.Random(seed), 14), fmt.Sprint("seed ", seed))
	}
}

func FuzzLiveIsRecorded(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30})
	w := setup(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		liveIsRecorded(t, w, talktest.New(talktest.Bytes(choices), 10), "fuzz")
	})
}

func liveIsRecorded(t *testing.T, w *world, talk talktest.Talk, name string) {
	t.Helper()
	diff := drift(t, w, talk)
	if diff == "" {
		return
	}
	small := talk.Shrink(func(c talktest.Talk) bool { return drift(t, w, c) != "" })
	t.Fatalf("%s\n%s%s", name, small, drift(t, w, small))
}

// drift records a talk on a thread of its own, and returns the first difference between what is shown live and afterwards.
func drift(t *testing.T, w *world, talk talktest.Talk) string {
	t.Helper()
	ctx := t.Context()
	one := *w // with a thread of its own
	w = &one
	w.t, w.thread, w.at = t, id.NewThread(), ""
	w.make(w.thread)
	saves := saver.New(w.rows.Threads(), nil, nil)
	ids := make([]id.Checkpoint, len(talk))
	follows := map[string]*overlay.Follow{}
	look := overlay.Look{On: true, Key: "messages", Markers: overlay.BareMarkers}
	values := func(at id.Checkpoint, s talktest.Step, ahead *overlay.Ahead) json.RawMessage {
		r := w.overlay.Read(w.thread, look)
		defer r.Done()
		got, err := r.Values(ctx, at, spell(s), ahead)
		require.NoError(t, err)
		return got
	}
	for i, s := range talk {
		base, start := id.Checkpoint(""), id.Checkpoint("")
		if s.Parent >= 0 {
			base = ids[s.Parent]
			if start = base; talk[s.Parent].Source == "input" && talk[s.Parent].Run == s.Run {
				start = ""
				if p := talk[s.Parent].Parent; p >= 0 {
					start = ids[p]
				}
			}
		}
		ahead := func() *overlay.Ahead {
			return &overlay.Ahead{Grown: true, Run: id.Run(s.Run), ByClient: func(mid string) bool { return contains(s.Removed, mid) }}
		}
		var folded, followed json.RawMessage
		if s.Source == "loop" {
			folded = values(base, s, ahead())
			f := follows[s.Run]
			if f == nil {
				var err error
				f, err = w.overlay.Follow(ctx, w.thread, look, start, ahead())
				require.NoError(t, err)
				follows[s.Run] = f
			}
			var err error
			followed, err = f.Values(spell(s))
			require.NoError(t, err)
			removeBy(ctx, t, w, saves, base, s)
		}
		w.at = base
		list := make([]msg, len(s.List))
		for j, m := range s.List {
			list[j] = msg{m.Kind, m.ID, m.Content}
			if m.Declared {
				list[j] = append(list[j], "lc_source", "summarization")
			}
		}
		p := w.next(s.Source, id.Run(s.Run), list)
		if s.Text != "" {
			p.Data = json.RawMessage(strings.Replace(string(p.Data), `"channel_versions":{`, fmt.Sprintf(`"channel_versions":{"summary_text":%q,`, "of "+s.Text), 1))
			p.Data = json.RawMessage(strings.Replace(string(p.Data), `"channel_values":{`, fmt.Sprintf(`"channel_values":{"summary_text":%q,`, s.Text), 1))
		}
		require.NoError(t, saves.Save(ctx, graph.Save{Put: p}))
		ids[i] = p.ID
		if s.Source != "loop" {
			continue
		}
		recorded := lines(values(p.ID, s, nil))
		if diff := cmp.Diff(recorded, lines(folded)); diff != "" {
			return fmt.Sprintf("step %d, folded (-recorded +live)\n%s", i, diff)
		}
		if diff := cmp.Diff(recorded, lines(followed)); diff != "" {
			return fmt.Sprintf("step %d, followed (-recorded +live)\n%s", i, diff)
		}
	}
	if n := len(talk) - 1; n >= 0 {
		return misattached(t, w, ids[n], talk[n]) + misnamed(t, w, ids[n], talk[n]) + misplaced(t, w, ids[n], talk[n])
	}
	return ""
}

// misnamed returns what is wrong with the ids of messages at a checkpoint: each has one, the same in every read and in the log.
func misnamed(t *testing.T, w *world, at id.Checkpoint, s talktest.Step) string {
	t.Helper()
	tr, err := eventstore.TranscriptAt(t.Context(), w.rows, w.thread, at)
	require.NoError(t, err)
	logged := map[eventstore.Seq]string{}
	require.NoError(t, w.rows.EachContent(t.Context(), w.thread, eventstore.Ranges(tr.Entries), func(e *eventstore.Event) error {
		logged[e.Seq] = e.MessageID
		return nil
	}))
	var want []string
	for _, e := range tr.Entries {
		if !e.Summary {
			want = append(want, logged[e.Seq])
		}
	}
	for range 2 {
		o := overlay.New(w.rows, overlay.Config{Settings: overlay.Defaults()}) // as after a restart
		r := o.Read(w.thread, o.Look(t.Context(), "g", overlay.State))
		values, err := r.Values(t.Context(), at, spell(s), overlay.RecordView)
		r.Done()
		require.NoError(t, err)
		var got []string
		seen := map[string]bool{"": true}
		for _, m := range gjson.GetBytes(values, "messages").Array() {
			mid := m.Get("id").String()
			if seen[mid] {
				return fmt.Sprintf("id %q of %s is none or not the only one", mid, m.Raw)
			}
			seen[mid] = true
			got = append(got, mid)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return "ids (-log +state)\n" + diff
		}
	}
	return ""
}

// misplaced returns the errors in the order of a checkpoint's rows: by the rule of docs/events.md it is the order of the state.
func misplaced(t *testing.T, w *world, at id.Checkpoint, s talktest.Step) string {
	t.Helper()
	r := w.overlay.Read(w.thread, overlay.Look{On: true, Key: "messages", Markers: overlay.SystemMarkers})
	defer r.Done()
	values, err := r.Values(t.Context(), at, spell(s), overlay.RecordView)
	require.NoError(t, err)
	var want []string
	for _, m := range gjson.GetBytes(values, "messages").Array() {
		want = append(want, m.Get("id").String())
	}
	page, err := w.rows.MessagePage(t.Context(), eventstore.PageQuery{Thread: w.thread, At: at, Limit: 1000})
	require.NoError(t, err)
	require.False(t, page.More)
	var got []string
	var seqs []eventstore.Seq
	for _, row := range page.Rows {
		mid, place := row.MessageID, len(seqs)
		if row.Type == eventstore.TypeSummarize {
			mid = gjson.GetBytes(row.Content, "id").String()
		}
		if after := gjson.GetBytes(row.Metadata, "after_seq"); after.Exists() {
			named := slices.Index(seqs, eventstore.Seq(after.Int()))
			if named < 0 && after.Int() != 0 {
				return fmt.Sprintf("row %d stands behind %d, which is not there", row.Seq, after.Int())
			}
			place = named + 1
		}
		seqs, got = slices.Insert(seqs, place, row.Seq), slices.Insert(got, place, mid)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return "order (-state +rows)\n" + diff
	}
	return ""
}

// misattached returns what is wrong with attached markers at a checkpoint: they say what markers apart say, and nothing of them is left in what
// a client sends back.
func misattached(t *testing.T, w *world, at id.Checkpoint, s talktest.Step) string {
	t.Helper()
	read := func(form overlay.Markers) []gjson.Result {
		r := w.overlay.Read(w.thread, overlay.Look{On: true, Key: "messages", Markers: form})
		defer r.Done()
		values, err := r.Values(t.Context(), at, spell(s), nil)
		require.NoError(t, err)
		require.True(t, json.Valid(values))
		return gjson.GetBytes(values, "messages").Array()
	}
	facts := func(m gjson.Result) gjson.Result { return m.Get("additional_kwargs.summary_marker") }
	var want, got []string
	count, words, some := int64(0), "", false
	for _, m := range read(overlay.SystemMarkers) {
		if f := facts(m); f.Exists() {
			count, words, some = count+f.Get("replaced_count").Int(), f.Get("summary").String()+f.Get("run_id").Raw, true
			continue
		}
		line := m.Get("id").String() + m.Get("content").String()
		if some {
			line += fmt.Sprintf(" %d %s", count, words)
		}
		want, count, words, some = append(want, line), 0, "", false
	}
	attached, off := read(overlay.AttachedMarkers), read(overlay.NoMarkers)
	for _, m := range attached {
		line := m.Get("id").String() + m.Get("content").String()
		if f := facts(m); f.Exists() {
			line += fmt.Sprintf(" %d %s%s", f.Get("replaced_count").Int(), f.Get("summary"), f.Get("run_id").Raw)
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return "(-apart +attached)\n" + diff
	}
	clean := func(list []gjson.Result) string {
		var raw []json.RawMessage
		for _, m := range list {
			raw = append(raw, json.RawMessage(m.Raw))
		}
		got, err := w.overlay.Clean(t.Context(), "g", w.thread, at, json.RawMessage(`{"messages":`+string(jsonscan.Join(raw))+`}`))
		require.NoError(t, err)
		return string(got.JSON)
	}
	if diff := cmp.Diff(clean(off), clean(attached)); diff != "" {
		return "sent back (-without markers +with attached ones)\n" + diff
	}
	return ""
}

// removeBy saves what a client removes: as the input that the parent's `__start__` applies, or as what a command wrote there.
func removeBy(ctx context.Context, t *testing.T, w *world, saves *saver.Saver[thread.Tx], base id.Checkpoint, s talktest.Step) {
	t.Helper()
	if len(s.Removed) == 0 || base == "" {
		return
	}
	task, path := "11111111-1111-1111-1111-111111111111", "~__pregel_pull, __start__"
	if s.Command {
		task, path = "00000000-0000-0000-0000-000000000000", ""
	}
	var data []byte
	data = append(data, 0x90|byte(min(len(s.Removed), 15)))
	for _, mid := range s.Removed[:min(len(s.Removed), 15)] {
		data = msg{"remove", mid, ""}.msgpack(data)
	}
	require.NoError(t, saves.Save(ctx, graph.Save{
		At:     checkpointer.Key{Thread: w.thread, ID: base},
		Writes: []checkpointer.Write{{TaskID: task, Channel: "messages", Type: "msgpack", Data: data, Path: path}},
	}))
}

func contains(list []string, s string) bool {
	for _, one := range list {
		if one == s {
			return true
		}
	}
	return false
}

// spell returns the values of a step as a stream has them.
func spell(s talktest.Step) json.RawMessage {
	var list []string
	for _, m := range s.List {
		kwargs, mid := "{}", "null"
		if m.Declared {
			kwargs = `{"lc_source":"summarization"}`
		}
		if m.ID != "" {
			mid = fmt.Sprintf("%q", m.ID)
		}
		list = append(list, fmt.Sprintf(`{"content":%q,"additional_kwargs":%s,"type":%q,"id":%s}`, m.Content, kwargs, m.Kind, mid))
	}
	text := ""
	if s.Text != "" {
		text = fmt.Sprintf(`,"summary_text":%q`, s.Text)
	}
	return json.RawMessage(`{"messages":[` + strings.Join(list, ",") + `]` + text + `}`)
}

// lines returns what a person sees of messages.
func lines(values []byte) (out []string) {
	for _, m := range gjson.GetBytes(values, "messages").Array() {
		out = append(out, fmt.Sprint(m.Get("id"), " ", m.Get("type"), " ", m.Get("content"), m.Get("summary"), " ", m.Get("replaced_count"), " ", m.Get("run_id")))
	}
	return out
}
