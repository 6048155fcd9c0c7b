package overlay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	"understudy/thread"
)

// What langgraph and langchain's middleware stored is shown as package eventstore says that a person saw it.
func TestConversations(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../eventstore/testdata/conversations.json")
	require.NoError(t, err)
	var all map[string]struct {
		Log []struct {
			Put *struct {
				ID, Parent, Run      string
				Checkpoint, Metadata json.RawMessage
				Blobs                map[string]struct {
					Type, Version string
					Data          []byte
				}
			}
			Writes *struct {
				ID, Task, Path string
				Writes         []struct {
					Channel, Type string
					Data          []byte
				}
			}
		}
		Want []string
	}
	require.NoError(t, json.Unmarshal(data, &all))
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			saves := saver.New(w.rows.Threads(), nil, nil)
			var last id.Checkpoint
			for _, e := range c.Log {
				switch {
				case e.Writes != nil:
					var writes []checkpointer.Write
					for i, x := range e.Writes.Writes {
						writes = append(writes, checkpointer.Write{TaskID: e.Writes.Task, Index: i, Channel: x.Channel, Type: x.Type, Data: x.Data, Path: e.Writes.Path})
					}
					require.NoError(t, saves.Save(t.Context(), graph.Save{At: checkpointer.Key{Thread: w.thread, ID: id.Checkpoint(e.Writes.ID)}, Writes: writes}))
				case e.Put != nil:
					last = id.Checkpoint(e.Put.ID)
					p := &checkpointer.Put{ShapeJSON: json.RawMessage(shapeJSON), Checkpoint: checkpointer.Checkpoint{
						Key: checkpointer.Key{Thread: w.thread, ID: last}, Parent: id.Checkpoint(e.Put.Parent), Data: e.Put.Checkpoint,
						Metadata: e.Put.Metadata, Run: id.Run(e.Put.Run), Tasks: json.RawMessage("[]"), Shape: "shape",
					}}
					for channel, b := range e.Put.Blobs {
						p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: channel, Version: b.Version, Type: b.Type, Data: b.Data})
					}
					w.put(p)
				}
			}
			var got []string
			for _, m := range gjson.GetBytes(w.state(t.Context(), last), "messages").Array() {
				if facts := m.Get("additional_kwargs.summary_marker"); facts.Exists() {
					got = append(got, fmt.Sprintf("[%d: %s]", facts.Get("replaced_count").Int(), facts.Get("summary")))
				} else {
					got = append(got, m.Get("content").String())
				}
			}
			// Recording knows of runs what their rows say, and here are none.
			if name != "removed_by_input" {
				require.Empty(t, cmp.Diff(c.Want, got))
			}

			history, err := w.threads.History(t.Context(), thread.HistoryQuery{Thread: w.thread, Limit: 1000})
			require.NoError(t, err)
			for _, s := range history {
				require.JSONEq(t, string(w.state(t.Context(), s.ID)), string(s.Values), "history and state agree")
			}
		})
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	w := setup(t).condensed()
	ctx := t.Context()
	const shown = "h1 a1 h2 a2 " + marker + " h3 a3"
	off := choose(ctx, false)

	require.Equal(t, shown, ids(w.state(ctx, "")), "live")
	require.Equal(t, shown, ids(w.state(ctx, w.at)), "at a checkpoint")
	require.Equal(t, "Sum h3 a3", ids(w.state(off, "")))
	require.JSONEq(t, `"T"`, gjson.GetBytes(w.state(ctx, ""), "title").Raw, "the rest of the values stays")

	history, err := w.threads.History(ctx, thread.HistoryQuery{Thread: w.thread, Limit: 10})
	require.NoError(t, err)
	var all []string
	for _, s := range history {
		all = append(all, ids(s.Values))
		require.NotEmpty(t, s.ID)
	}
	require.Equal(t, []string{shown, "h1 a1 h2 a2 " + marker + " h3", "h1 a1 h2 a2 h3"}, all)

	v, err := w.threads.Get(ctx, w.thread)
	require.NoError(t, err)
	require.Equal(t, shown, ids(v.Values))
	v, err = w.threads.Patch(ctx, w.thread, thread.Patch{Metadata: json.RawMessage(`{"x":1}`)})
	require.NoError(t, err)
	require.Equal(t, shown, ids(v.Values))
	v, err = w.threads.Create(ctx, thread.New{ID: w.thread, IfExists: "do_nothing"})
	require.NoError(t, err)
	require.Equal(t, shown, ids(v.Values))

	q := thread.Search{Query: thread.Query{Limit: 1}, Extract: map[string]string{"first": "values.messages[0].id"}}
	page, _, err := w.threads.Search(ctx, q)
	require.NoError(t, err)
	require.NoError(t, w.threads.Show(ctx, q, page[0]))
	require.Equal(t, shown, ids(page[0].Values))
	require.JSONEq(t, `{"first":"h1"}`, string(page[0].Extracted))
	q = thread.Search{Query: thread.Query{Limit: 1}}
	page, _, err = w.threads.Search(off, q)
	require.NoError(t, err)
	require.NoError(t, w.threads.Show(off, q, page[0]))
	require.Equal(t, "Sum h3 a3", ids(page[0].Values))

	copied, err := w.threads.Copy(ctx, w.thread)
	require.NoError(t, err)
	require.Equal(t, shown, ids(copied.Values))
	require.NoError(t, w.threads.Delete(ctx, w.thread))
	w.make(w.thread) // of the same id, with the same seqs
	w.at, w.n = "", 100
	w.save(ms("h7 a7 h8"))
	w.save(ms("Sum h8"))
	require.Equal(t, "h7 a7 "+marker+" h8", ids(w.state(ctx, "")))
	v, err = w.threads.Get(ctx, copied.ID)
	require.NoError(t, err)
	require.Equal(t, shown, ids(v.Values), "a copy outlives its source")
}

// Where nothing was condensed, not a byte is copied.
func TestUntouched(t *testing.T) {
	t.Parallel()
	w := setup(t)
	at := w.save(ms("h1 a1"))
	values := json.RawMessage(`{"messages": [ {"id" : "h1"} ], "more": 1}`)
	r := w.overlay.Read(w.thread, overlay.Look{On: true, Key: "messages"})
	defer r.Done()
	for _, ahead := range []*overlay.Ahead{nil, overlay.RecordView} {
		got, err := r.Values(t.Context(), at, values, ahead)
		require.NoError(t, err)
		require.Same(t, &values[0], &got[0])
	}
	got, err := r.Values(t.Context(), "nobody recorded it", values, nil)
	require.NoError(t, err)
	require.Same(t, &values[0], &got[0])
}

func TestMarkers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.save([]msg{{"human", "h1", "one"}, {"ai", "a1", "two"}, {"human", "h2", "three"}})
	w.save([]msg{{"human", "Sum", "In \"short\"\n", "lc_source", "summarization"}, {"human", "h2", "three"}})
	for form, want := range map[overlay.Markers]string{
		"":                    `{"type":"system","id":"summary-marker-Sum","content":"In \"short\"\n","name":null,"response_metadata":{},"additional_kwargs":{"summary_marker":{"replaced_count":2,"summary":"In \"short\"\n","run_id":"run"}}}`,
		overlay.SystemMarkers: `{"type":"system","id":"summary-marker-Sum","content":"In \"short\"\n","name":null,"response_metadata":{},"additional_kwargs":{"summary_marker":{"replaced_count":2,"summary":"In \"short\"\n","run_id":"run"}}}`,
		overlay.BareMarkers:   `{"id":"summary-marker-Sum","type":"summary_marker","replaced_count":2,"summary":"In \"short\"\n","run_id":"run"}`,
		overlay.NoMarkers:     "",
	} {
		values := w.state(overlay.With(t.Context(), overlay.Choice{Markers: form}), "")
		require.True(t, json.Valid(values))
		require.Equal(t, want, gjson.GetBytes(values, `messages.#(id=="summary-marker-Sum")`).Raw)
		require.Equal(t, 3, strings.Count(ids(strip(values)), " ")+1)
	}
}

// strip takes markers out of values.
func strip(values []byte) []byte {
	var kept []string
	for _, m := range gjson.GetBytes(values, "messages").Array() {
		if !strings.HasPrefix(m.Get("id").String(), "summary-marker-") {
			kept = append(kept, m.Raw)
		}
	}
	return []byte(`{"messages":[` + strings.Join(kept, ",") + `]}`)
}

// What old writers left of a Command is shown as what the tool said, condensed or not.
func TestLegacy(t *testing.T) {
	t.Parallel()
	for stored, want := range map[string]string{
		`Command(update={'messages': [ToolMessage(content='It\'s\n\u00e9 done', name='x', tool_call_id='1')]})`: "It's\né done",
		`Command(update={'messages': [ToolMessage(content="she said 'no'", tool_call_id='1')]})`:                "she said 'no'",
		`Command(update={'messages': [ToolMessage(content='cut`:                                                 `Command(update={'messages': [ToolMessage(content='cut`,
		`Command(update={'goto': 1})`: `Command(update={'goto': 1})`,
		`Say Command(update=…`:        `Say Command(update=…`,
	} {
		w := setup(t)
		tool := msg{"tool", "t1", stored, "tool_call_id", "1"}
		w.save([]msg{{"human", "h1", "x"}, tool, {"human", "h2", "y"}})
		require.Equal(t, want, gjson.GetBytes(w.state(t.Context(), ""), "messages.1.content").String())
		require.Equal(t, stored, gjson.GetBytes(w.state(choose(t.Context(), false), ""), "messages.1.content").String())
		message, err := json.Marshal(map[string]string{"type": "tool", "content": stored})
		require.NoError(t, err)
		for _, kind := range []string{eventstore.TypeTool, "tool_result"} {
			rows := []*eventstore.Event{{Type: eventstore.TypeHuman, Content: message}, {Type: kind, Content: message}}
			overlay.Unwrap(rows)
			require.Equal(t, stored, gjson.GetBytes(rows[0].Content, "content").String(), "a person may say so")
			require.Equal(t, want, gjson.GetBytes(rows[1].Content, "content").String())
		}
		w.save(append(ms("Sum"), msg{"human", "h2", "y"}))
		require.Equal(t, want, gjson.GetBytes(w.state(t.Context(), ""), "messages.1.content").String())
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	quiet := overlay.Defaults()
	quiet.State, quiet.Markers = false, overlay.NoMarkers
	w := setup(t, overlay.Config{Settings: overlay.Defaults(), Graphs: map[string]overlay.Settings{"g": quiet}}).condensed()
	require.Equal(t, "Sum h3 a3", ids(w.state(t.Context(), "")), "as its graph has it")
	require.Equal(t, "h1 a1 h2 a2 h3 a3", ids(w.state(choose(t.Context(), true), "")), "a request goes above settings")
	v, err := w.threads.Get(t.Context(), w.thread)
	require.NoError(t, err)
	require.Equal(t, "h1 a1 h2 a2 h3 a3", ids(v.Values))
	require.Equal(t, overlay.Look{}, (*overlay.Overlay)(nil).Look(t.Context(), "g", overlay.State))
	require.Equal(t, overlay.Look{On: true, Updates: true, Markers: overlay.AttachedMarkers, Key: "messages", Live: true}, w.overlay.Look(t.Context(), "other", overlay.Stream))
}

// counting counts the contents that are read.
type counting struct {
	eventstore.Reader
	read map[eventstore.Seq]int
}

func (c counting) EachContent(ctx context.Context, t id.Thread, ranges []eventstore.Range, fn func(*eventstore.Event) error) error {
	return c.Reader.EachContent(ctx, t, ranges, func(e *eventstore.Event) error {
		c.read[e.Seq]++
		return fn(e)
	})
}

// A history reads each message once.
func TestEachMessageOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for i := range 30 {
		w.save([]msg{{"human", fmt.Sprint("S", i), "s", "lc_source", "summarization"}, {"human", fmt.Sprint("h", i), "x"}})
	}
	c := counting{w.rows, map[eventstore.Seq]int{}}
	o := overlay.New(c, overlay.Config{Settings: apart()})
	r := o.Read(w.thread, o.Look(t.Context(), "g", overlay.History))
	list, err := w.threads.History(choose(t.Context(), false), thread.HistoryQuery{Thread: w.thread, Limit: 100})
	require.NoError(t, err)
	for _, s := range list {
		require.NoError(t, r.Snapshot(t.Context(), s, true))
	}
	r.Done()
	require.Len(t, list, 30)
	require.GreaterOrEqual(t, len(c.read), 59)
	for seq, n := range c.read {
		require.Equal(t, 1, n, "seq %d", seq)
	}
}

// shared reads a database of several servers.
type shared struct {
	eventstore.Reader
	log int64
}

func (s *shared) Transcripts(ctx context.Context, t id.Thread, cs []id.Checkpoint) (*eventstore.Transcripts, error) {
	read, err := s.Reader.Transcripts(ctx, t, cs)
	if read != nil {
		read.Log = s.log
	}
	return read, err
}

// Another server deletes a thread, and makes one of the same id: nothing of the old one is shown here.
func TestThreadMadeAgainElsewhere(t *testing.T) {
	t.Parallel()
	w := setup(t)
	rows := &shared{w.rows, 1}
	here := overlay.New(rows, overlay.Config{Settings: apart()})
	show := func() string {
		w.save([]msg{{"human", "h1", "said " + fmt.Sprint(rows.log)}, {"ai", "a1", "x"}})
		w.save([]msg{{"human", "S", "s", "lc_source", "summarization"}, {"ai", "a1", "x"}})
		s, err := w.threads.State(choose(t.Context(), false), checkpointer.Key{Thread: w.thread}, false)
		require.NoError(t, err)
		r := here.Read(w.thread, here.Look(t.Context(), "g", overlay.State))
		defer r.Done()
		require.NoError(t, r.Snapshot(t.Context(), s, true))
		return gjson.GetBytes(s.Values, "messages.0.content").String()
	}
	require.Equal(t, "said 1", show())
	require.NoError(t, w.threads.Delete(t.Context(), w.thread))
	w.make(w.thread)
	w.at, rows.log = "", 2
	require.Equal(t, "said 2", show())
}

// Messages may be kept under another key.
func TestKey(t *testing.T) {
	t.Parallel()
	s := apart()
	s.Key = "the.chat"
	w := setup(t, overlay.Config{Settings: s})
	for _, list := range [][]msg{ms("h1 a1 h2"), ms("Sum h2")} {
		p := w.next("loop", "run", list)
		p.Data = json.RawMessage(strings.Replace(string(p.Data), `{"messages":`, `{"the.chat":`, 1))
		p.Metadata = json.RawMessage(`{"source":"loop","step":1,"graph_id":"g"}`)
		p.Blobs[0].Channel = "the.chat"
		p.Shape, p.ShapeJSON = "other", json.RawMessage(strings.ReplaceAll(shapeJSON, "messages", "the.chat"))
		saves := saver.New(w.rows.Threads(), nil, nil)
		saves.Keys = w.overlay.Key
		require.NoError(t, saves.Save(t.Context(), graph.Save{Put: p}))
	}
	values := strings.Replace(string(w.state(t.Context(), "")), `"the.chat":`, `"messages":`, 1)
	require.Equal(t, "h1 a1 "+marker+" h2", ids([]byte(values)))
	got, err := w.overlay.Clean(t.Context(), "g", w.thread, w.at, json.RawMessage(`{"the.chat":[{"id":"h1","content":"text of h1"}],"messages":[{"id":"h1"}]}`))
	require.NoError(t, err)
	require.Equal(t, `{"the.chat":[],"messages":[{"id":"h1"}]}`, string(got.JSON))
}

// The words of a graph's own event go before those of its summary.
func TestWordsOfASummary(t *testing.T) {
	t.Parallel()
	w := setup(t)
	saves := saver.New(w.rows.Threads(), nil, nil)
	require.NoError(t, saves.Save(t.Context(), graph.Save{Put: w.next("loop", "run", ms("h1 a1 h2 a2"))}))
	require.NoError(t, saves.Save(t.Context(),
		graph.Save{Put: w.next("loop", "run", ms("h1 a1 h2 a2 h3")), Words: "in its own words"},
		graph.Save{Put: w.next("loop", "run", ms("Sum h2 a2 h3"))}))
	require.Equal(t, "in its own words", gjson.GetBytes(w.state(t.Context(), ""), `messages.#(type=="system").content`).String())
}

// asked counts how often transcripts are read.
type asked struct {
	eventstore.Reader
	times int
}

func (a *asked) Transcripts(ctx context.Context, t id.Thread, cs []id.Checkpoint) (*eventstore.Transcripts, error) {
	a.times++
	return a.Reader.Transcripts(ctx, t, cs)
}

// A history reads the transcripts of its entries by pages, not one by one, and shows the same as reading each.
func TestHistoryReadsTranscriptsAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.save(ms("h1 a1 h2 a2"))
	for n := range 100 {
		w.save(ms(fmt.Sprintf("S%d a2 h%d", n/10, n+3)))
	}
	rows := &asked{Reader: w.rows}
	look := overlay.New(rows, overlay.Config{Settings: apart()})
	threads := thread.NewService(thread.Options{Store: w.rows.Threads(), Snapshots: checkpointer.NewSnapshots(w.rows.Threads(), nil), Overlay: look})
	list, err := threads.History(choose(t.Context(), true), thread.HistoryQuery{Thread: w.thread, Limit: 100})
	require.NoError(t, err)
	require.Len(t, list, 100)
	require.LessOrEqual(t, rows.times, 5)
	for _, snap := range list[:20] {
		one, err := threads.State(choose(t.Context(), true), checkpointer.Key{Thread: w.thread, ID: snap.ID}, false)
		require.NoError(t, err)
		require.JSONEq(t, string(one.Values), string(snap.Values))
		require.Contains(t, string(snap.Values), "text of h1")
	}
}
