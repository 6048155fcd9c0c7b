package service_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/compat"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/storage/sqlite"
)

// talker is a graph that saves messages and emits what a test says. Messages are words such as h1, a1 and S1, a summary.
type talker struct {
	graph.Graph
	talk func(t *talk)
}

type talk struct {
	inv      graph.Invocation
	emit     func(graph.Event)
	ctx      context.Context //nolint:containedctx // of one call of Stream
	metadata string          // of checkpoints; "": of a step of the loop
}

func (g talker) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		g.talk(&talk{inv: inv, ctx: ctx, emit: func(e graph.Event) { yield(e, nil) }})
	}
}

var kinds = map[byte]string{'h': "human", 'a': "ai", 'S': "human"}

func fields(word string) (typ, content string, kwargs map[string]string) {
	kwargs = map[string]string{}
	if word[0] == 'S' {
		kwargs["lc_source"] = "summarization"
	}
	return kinds[word[0]], "text of " + word, kwargs
}

// save saves a checkpoint after the head and gives its id.
func (k *talk) save(words string) id.Checkpoint {
	head, err := k.inv.Saver.Load(k.ctx, checkpointer.Key{Thread: k.inv.Thread})
	if err != nil {
		panic(err)
	}
	n, parent := 1, id.Checkpoint("")
	if head != nil {
		parent = head.ID
		if _, err := fmt.Sscanf(string(parent), "1f000000-0000-6%03x", &n); err != nil {
			panic(err)
		}
		n++
	}
	cp := id.Checkpoint(fmt.Sprintf("1f000000-0000-6%03x-8000-000000000000", n))
	version := fmt.Sprintf("%032d.0", n)
	list := strings.Fields(words)
	data := msgp.AppendArrayHeader(nil, uint32(len(list)))
	for _, word := range list {
		typ, content, kwargs := fields(word)
		data = msgp.AppendMapHeader(data, 4)
		for _, f := range [][2]string{{"type", typ}, {"id", word}, {"content", content}} {
			data = msgp.AppendString(msgp.AppendString(data, f[0]), f[1])
		}
		data = msgp.AppendMapStrStr(msgp.AppendString(data, "additional_kwargs"), kwargs)
	}
	err = k.inv.Saver.Save(k.ctx, graph.Save{Put: &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{
			Key: checkpointer.Key{Thread: k.inv.Thread, ID: cp}, Parent: parent, Run: k.inv.Run,
			Data:     fmt.Appendf(nil, `{"v":4,"id":%q,"ts":%q,"channel_values":{},"channel_versions":{"messages":%q}}`, cp, time.Now().UTC().Format(time.RFC3339Nano), version),
			Metadata: []byte(cmp.Or(k.metadata, fmt.Sprintf(`{"source":"loop","step":%d,"parents":{}}`, n))), Tasks: json.RawMessage(`[]`), Shape: "shape",
		},
		Blobs:     []checkpointer.Blob{{Channel: "messages", Version: version, Type: "msgpack", Data: data}},
		ShapeJSON: json.RawMessage(`{"out":["messages"],"channels":{"messages":{"kind":"BinaryOperatorAggregate","empty":{"type":"msgpack","data":"kA=="}}}}`),
	}})
	if err != nil {
		panic(err)
	}
	return cp
}

// message spells a message as streams do.
func message(word string) string {
	typ, content, kwargs := fields(word)
	b, err := json.Marshal(map[string]any{"type": typ, "id": word, "content": content, "additional_kwargs": kwargs})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// values emits a state, of a checkpoint or of none.
func (k *talk) values(at id.Checkpoint, words string) {
	var list []string
	for _, word := range strings.Fields(words) {
		list = append(list, message(word))
	}
	k.emit(graph.Event{Name: "values", Checkpoint: at, Data: json.RawMessage(`{"messages":[` + strings.Join(list, ",") + `]}`)})
}

func (k *talk) token(name, message, metadata string) {
	k.emit(graph.Event{Name: name, Data: json.RawMessage(`[` + message + `,` + metadata + `]`)})
}

// condense is three steps of which the second condenses h1 a1 h2 a2.
func condense(k *talk) {
	k.values(k.save("h1 a1 h2 a2 h3"), "h1 a1 h2 a2 h3")
	k.token("messages", `{"type":"AIMessageChunk","id":"x1","content":"In "}`, `{"lc_source":"summarization"}`)
	k.token("messages", `{"type":"remove","id":"__remove_all__","content":""}`, `{}`)
	k.token("messages", message("S1"), `{}`)
	k.values(k.save("S1 h3"), "S1 h3")
	k.token("messages", `{"type":"AIMessageChunk","id":"a3","content":"say \"summarization\""}`, `{}`)
	k.values(k.save("S1 h3 a3"), "S1 h3 a3")
}

const before = "h1 a1 h2 a2 summary-marker-S1 h3 a3"

func shownIDs(data []byte) string {
	var out []string
	for _, m := range gjson.GetBytes(data, "messages").Array() {
		out = append(out, m.Get("id").String())
	}
	return strings.Join(out, " ")
}

// read reads a follower to its end, or to the n-th record: values as the ids in them, messages as their ids.
func read(t *testing.T, f run.Follower, n int) (out []string) {
	t.Helper()
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for n <= 0 || len(out) < n {
		records, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		for _, r := range records {
			switch r.Event {
			case "values":
				out = append(out, shownIDs(r.Data))
				require.Contains(t, string(compat.AppendRecord(nil, r, false)), string(r.Data), "the frame is of the same form")
			case "metadata":
			case "messages/metadata":
				gjson.ParseBytes(r.Data).ForEach(func(mid, _ gjson.Result) bool {
					out = append(out, r.Event+" "+mid.String())
					return false
				})
			default:
				out = append(out, r.Event+" "+gjson.GetBytes(r.Data, "0.id").String())
			}
		}
	}
	return out
}

func withOverlay(ctx context.Context, on bool) context.Context {
	return overlay.With(ctx, overlay.Choice{Overlay: &on})
}

func talking(t *testing.T, talks map[string]func(*talk)) *world {
	t.Helper()
	w := newWorld(t, nil, nil)
	for name, fn := range talks {
		require.NoError(t, w.graphs.Add(name, "", talker{talk: fn}))
	}
	w.stop()
	w.overlay = func(rows *sqlite.Store) *overlay.Overlay { return overlay.New(rows, apart()) }
	w.start()
	return w
}

// Every reader sees a run as it asked for, live and replayed, also after a restart.
func TestOverlayOfStreams(t *testing.T) {
	t.Parallel()
	w := talking(t, map[string]func(*talk){"g": condense})
	overlaid := []string{"h1 a1 h2 a2 h3", "h1 a1 h2 a2 summary-marker-S1 h3", "messages a3", before}
	raw := []string{"h1 a1 h2 a2 h3", "messages x1", "messages __remove_all__", "messages S1", "S1 h3", "messages a3", "S1 h3 a3"}
	req := request("g")
	req.Resumable = true

	th := w.thread()
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	require.Equal(t, overlaid, read(t, f, 0))
	for range 2 {
		for on, want := range map[bool][]string{true: overlaid, false: raw} {
			ctx := withOverlay(t.Context(), on)
			f, err = w.runs.JoinStream(ctx, th, r.ID, &bridge.Offset{}, nil, false)
			require.NoError(t, err)
			require.Equal(t, want, read(t, f, 0))
			f, err = w.runs.StreamThread(ctx, th, &bridge.Offset{}, nil)
			require.NoError(t, err)
			require.Equal(t, want, read(t, f, len(want)))
			f, err = w.runs.Join(ctx, th, r.ID)
			require.NoError(t, err)
			res, err := f.Result(t.Context())
			require.NoError(t, err)
			f.Close(false)
			require.Equal(t, want[len(want)-1], shownIDs(res.Values))
		}
		w.stop()
		w.start()
	}

	for on, want := range map[bool]string{true: before, false: "S1 h3 a3"} {
		_, f, err := w.runs.Start(withOverlay(t.Context(), on), w.thread(), request("g"))
		require.NoError(t, err)
		res, err := f.Result(t.Context())
		require.NoError(t, err)
		f.Close(false)
		require.Equal(t, want, shownIDs(res.Values))
	}
	bare := overlay.With(t.Context(), overlay.Choice{Markers: overlay.BareMarkers})
	f, err = w.runs.JoinStream(bare, th, r.ID, &bridge.Offset{}, []string{"values"}, false)
	require.NoError(t, err)
	records, err := f.Next(t.Context())
	require.NoError(t, err)
	f.Close(false)
	require.Equal(t, "summary_marker", gjson.GetBytes(records[len(records)-1].Data, "messages.4.type").String())
}

// Many readers of one record share one form of it.
func TestOverlayIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := talking(t, map[string]func(*talk){"g": condense})
	req := request("g")
	req.Resumable = true
	th := w.thread()
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	read(t, f, 0)
	var last []*bridge.Record
	for range 3 {
		f, err := w.runs.JoinStream(t.Context(), th, r.ID, &bridge.Offset{}, []string{"values"}, false)
		require.NoError(t, err)
		records, err := f.Next(t.Context())
		require.NoError(t, err)
		f.Close(false)
		last = append(last, records[len(records)-1])
	}
	require.Same(t, last[0], last[1])
	require.Same(t, last[0], last[2])
}

// States that are never saved are folded on what the run began with.
func TestOverlayWithoutCheckpoints(t *testing.T) {
	t.Parallel()
	w := talking(t, map[string]func(*talk){"g": condense, "exit": func(k *talk) {
		k.values("", "S1 h3 a3 h4")
		k.values("", "S2 a3 h4")
		k.values("", "S2 a3 h4 a4")
		k.save("S2 a3 h4 a4")
	}, "remove": func(k *talk) { k.values("", "S1 a3 h4") }, "none": func(k *talk) { k.values("", "h1 a1") }, "new": func(k *talk) {
		k.values("", "h1 a1 h2")
		k.values("", "S1 h2")
		k.save("S1 h2")
	}, "forget": func(k *talk) { k.values("", "S2 a3 h4"); k.save("S2 a3 h4") }})
	th := w.thread()
	do := func(graph, input string) []string {
		req := request(graph)
		req.Durability = "exit"
		if input != "" {
			req.Input = json.RawMessage(input)
		}
		_, f, err := w.runs.Start(t.Context(), th, req)
		require.NoError(t, err)
		return read(t, f, 0)
	}
	do("g", "")
	require.Equal(t, []string{"h1 a1 h2 a2 summary-marker-S1 a3 h4"}, do("remove", `{"messages":[{"type":"remove","id":"h3"}]}`))
	const again = "h1 a1 h2 a2 summary-marker-S1 h3 summary-marker-S2 a3 h4"
	require.Equal(t, []string{before + " h4", again, again + " a4"}, do("exit", ""))
	_, f, err := w.runs.Start(t.Context(), "", request("none"))
	require.NoError(t, err)
	require.Equal(t, []string{"h1 a1"}, read(t, f, 0), "a temporary run has no transcript")

	require.Equal(t, []string{"h1 h2 a2 summary-marker-S1 h3 summary-marker-S2 a3 h4"}, do("forget", `{"messages":[{"type":"remove","id":"a1"}]}`), "deleted though the graph does not know it")
	th = w.thread()
	require.Equal(t, []string{"h1 a1 h2", "h2"}, do("new", ""), "as it will be recorded: in the first checkpoint of the thread a summary stands for nothing")
}

// Graphs do not meet again what their clients had from a transcript.
func TestOverlayOfInputs(t *testing.T) {
	t.Parallel()
	var got graph.Invocation
	w := talking(t, map[string]func(*talk){"g": condense, "next": func(k *talk) {
		got = k.inv
		k.values(k.save("S1 h3 a3 h4"), "S1 h3 a3 h4")
	}})
	th := w.thread()
	_, f, err := w.runs.Start(t.Context(), th, request("g"))
	require.NoError(t, err)
	read(t, f, 0)
	req := request("next")
	const sent = `{"messages":[{"type":"human","id":"h1","content":"text of h1"},{"type":"remove","id":"a1"},{"type":"system","id":"summary-marker-S1"},{"type":"human","id":"h4"}]}`
	req.Input = json.RawMessage(sent)
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	require.Equal(t, []string{"h1 h2 a2 summary-marker-S1 h3 a3 h4"}, read(t, f, 0))
	require.Equal(t, `{"messages":[{"type":"human","id":"h4"}]}`, string(got.Input))
	row, err := w.runs.Get(t.Context(), th, r.ID)
	require.NoError(t, err)
	require.Equal(t, sent, string(row.Kwargs.Input), "the row keeps what was sent")

	req = request("next")
	req.Input, req.Command = nil, json.RawMessage(`{"resume":1,"update":{"messages":[{"type":"remove","id":"h1"}]}}`)
	_, f, err = w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	require.Equal(t, []string{"h2 a2 summary-marker-S1 h3 a3 h4"}, read(t, f, 0))
	require.Equal(t, `{"resume":1,"update":{"messages":[]}}`, string(got.Command))
}

// Every form in which a summarizer's messages come is left out, and no other.
func TestOverlayOfTokens(t *testing.T) {
	t.Parallel()
	w := talking(t, map[string]func(*talk){"g": func(k *talk) {
		k.values(k.save("h1 a1 h2 a2"), "h1 a1 h2 a2")
		for _, e := range []struct{ name, data string }{
			{"messages/metadata", `{"x1":{"metadata":{"lc_source":"summarization"}}}`},
			{"messages/partial", `[{"id":"x1","content":"In short"}]`},
			{"messages/complete", `[{"id":"x1","content":"In short"}]`},
			{"messages/metadata", `{"a3":{"metadata":{}}}`},
			{"messages/partial", `[{"id":"a3","content":"\"summarization\""}]`},
			{"messages/metadata", `{"h1":{"metadata":{}}}`},
			{"messages/complete", `[{"id":"h1","type":"remove","content":""}]`},
			{"messages/metadata", `{"__remove_all__":{"metadata":{}}}`},
			{"messages/complete", `[{"id":"__remove_all__","type":"remove","content":""}]`},
			{"messages/metadata", `{"s1":{"metadata":{}}}`},
			{"messages/complete", `[{"id":"s1","type":"human","additional_kwargs":{"lc_source":"summarization"}}]`},
			{"messages/complete", `[{"id":"a1","type":"remove","content":""}]`},
			{"messages/complete", `[{"id":"a2","type":"remove","content":""}]`}, // not the oldest
			{"messages", `[{"id":"h2","type":"remove","content":""},{}]`},
			{"messages", `[{"id":"t1","args":{"lc_source":"summarization"}},{}]`},
			{"events", `{"event":"on_chat_model_stream","data":{"chunk":{"content":"w"}},"metadata":{"lc_source":"summarization"}}`},
			{"events", `{"event":"on_chain_end","data":{"output":{"lc_source":"summarization"}},"metadata":{}}`},
			{"messages/metadata", `{"a4":{"metadata":{}}}`},
			{"messages/metadata", `{"a5":{"metadata":{}}}`},
			{"messages/complete", `[{"id":"s2","type":"human","additional_kwargs":{"lc_source":"summarization"}}]`},
			{"messages/metadata", `{"a6":{"metadata":{}}}`},
			{"updates", `{"n":{"messages":[{"id":"x1","additional_kwargs":{"lc_source":"summarization"}}]}}`},
			{"messages/metadata", `{"a7":{"metadata":{}}}`},
		} {
			k.emit(graph.Event{Name: e.name, Data: json.RawMessage(e.data)})
		}
		k.emit(graph.Event{Name: "messages", NS: "child:1", Data: json.RawMessage(`[{"id":"x2"},{"lc_source":"summarization"}]`)})
	}})
	_, f, err := w.runs.Start(t.Context(), w.thread(), request("g"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"h1 a1 h2 a2", "messages/metadata a3", "messages/partial a3", "messages/complete a2", "messages t1", "events ",
		"messages/metadata a4", "messages/metadata a5", "messages/metadata a6", "updates ", "messages/metadata a7",
	}, read(t, f, 0))
}

// apart shows markers as messages of their own.
func apart() overlay.Config {
	s := overlay.Defaults()
	s.Markers = overlay.SystemMarkers
	return overlay.Config{Settings: s}
}

// An update that condenses shows what is new only, live and when it is replayed; all others, and those of other readers, stay as they are.
func TestOverlayOfUpdates(t *testing.T) {
	t.Parallel()
	condensing := `{"x":{"messages":[{"type":"remove","id":"__remove_all__","content":""},` + message("S1") + `,` + message("h2") + `,` + message("a2") + `]}}`
	const reset = `{"x":{"messages":[{"type":"remove","id":"__remove_all__","content":""}]}}`
	w := talking(t, map[string]func(*talk){"g": func(k *talk) {
		k.save("h1 a1 h2")
		k.emit(graph.Event{Name: "updates", Data: json.RawMessage(condensing)})
		k.emit(graph.Event{Name: "updates", NS: "child:1", Data: json.RawMessage(condensing)})
		k.emit(graph.Event{Name: "updates", Data: json.RawMessage(reset)})
		k.emit(graph.Event{Name: "custom", Data: json.RawMessage(condensing)})
	}, "late": func(k *talk) { // the checkpoints of this step and the next are saved before the event is published
		before := k.save("h1 a1 h2")
		k.save("S1 h2 a2")
		k.emit(graph.Event{Name: "updates", Data: json.RawMessage(condensing)})
		k.save("S1 h2 a2 h3")
		k.emit(graph.Event{Name: "updates", Data: json.RawMessage(condensing), Checkpoint: before})
		k.emit(graph.Event{Name: "updates", Data: json.RawMessage(reset)})
	}})
	th := w.thread()
	updates := func(f run.Follower) (out []string) {
		defer f.Close(false)
		for {
			records, err := f.Next(t.Context())
			if errors.Is(err, io.EOF) {
				return out
			}
			require.NoError(t, err)
			for _, r := range records {
				if strings.HasPrefix(r.Event, "updates") || r.Event == "custom" {
					out = append(out, r.Event+" "+string(r.Data))
				}
			}
		}
	}
	raw := []string{"updates " + condensing, "updates|child:1 " + condensing, "updates " + reset, "custom " + condensing}
	shown := slices.Clone(raw)
	shown[0] = `updates {"x":{"messages":[` + message("a2") + `]}}`
	req := request("g")
	req.Resumable = true
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	require.Equal(t, shown, updates(f))
	for _, tt := range []struct {
		ctx  context.Context
		want []string
	}{{t.Context(), shown}, {withOverlay(t.Context(), true), shown}, {withOverlay(t.Context(), false), raw}} {
		f, err := w.runs.JoinStream(tt.ctx, th, r.ID, &bridge.Offset{}, nil, false)
		require.NoError(t, err)
		require.Equal(t, tt.want, updates(f))
	}
	_, f, err = w.runs.Start(t.Context(), w.thread(), request("late"))
	require.NoError(t, err)
	require.Equal(t, []string{shown[0], shown[0], raw[2]}, updates(f))
	settings := overlay.Defaults()
	settings.Updates = false
	w.stop()
	w.overlay = func(rows *sqlite.Store) *overlay.Overlay {
		return overlay.New(rows, overlay.Config{Settings: settings})
	}
	w.start()
	f, err = w.runs.JoinStream(t.Context(), th, r.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	require.Equal(t, raw, updates(f))
}

// slowEvents are recorded transcripts that are read only when they may be.
type slowEvents struct {
	eventstore.Reader
	begins, released chan struct{}
}

func (s slowEvents) Transcripts(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (*eventstore.Transcripts, error) {
	select {
	case s.begins <- struct{}{}:
	default:
	}
	select {
	case <-s.released:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.Reader.Transcripts(ctx, t, checkpoints)
}

// A reader whose records take long to show is not held up: its heartbeats come when they are due, and then what it would have got, never what the overlay
// hides. Nor is the end of the server.
func TestOverlayThatTakesLong(t *testing.T) {
	t.Parallel()
	w := talking(t, map[string]func(*talk){"g": condense})
	req := request("g")
	req.Resumable = true
	th := w.thread()
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	want := read(t, f, 0)
	replay := func() run.Follower {
		f, err := w.runs.JoinStream(t.Context(), th, r.ID, &bridge.Offset{}, nil, false)
		require.NoError(t, err)
		return f
	}
	slow := slowEvents{nil, make(chan struct{}, 1), make(chan struct{})}
	w.stop()
	w.overlay = func(rows *sqlite.Store) *overlay.Overlay {
		slow.Reader = rows
		return overlay.New(slow, apart())
	}
	w.start()
	f = replay()
	var got []string
	for range 20 { // heartbeats
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		records, err := f.Next(ctx)
		cancel()
		for _, rec := range records {
			require.NotEqual(t, "values", rec.Event)
			if rec.Event != "metadata" {
				got = append(got, rec.Event)
			}
		}
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	}
	require.Empty(t, got)
	next(t, slow.begins)
	close(slow.released)
	require.Equal(t, want, read(t, f, 0))

	w.stop()
	slow = slowEvents{nil, make(chan struct{}, 1), make(chan struct{})}
	w.start()
	f = replay()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		for {
			if _, err := f.Next(ctx); err != nil {
				left <- err
				return
			}
		}
	}()
	next(t, slow.begins)
	cancel()
	require.ErrorIs(t, next(t, left), context.Canceled)
	f.Close(true)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.stop()
	}()
	next(t, stopped)
}
