package overlay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/checkpointer/saver"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/storage/sqlite"
	"understudy/thread"
)

// shapeJSON describes a graph that has messages and a title.
const shapeJSON = `{"out":["messages","title"],"channels":{"messages":{"kind":"BinaryOperatorAggregate","empty":{"type":"msgpack","data":"kA=="}},"title":{"kind":"LastValue"}}}`

// world is a thread service on a database of its own. Its graph writes what update says.
type world struct {
	t       testing.TB
	rows    *sqlite.Store
	overlay *overlay.Overlay
	threads *thread.Service
	thread  id.Thread
	n       int
	at      id.Checkpoint // the newest checkpoint

	updated []json.RawMessage // values that came to the graph
}

func setup(t testing.TB, c ...overlay.Config) *world {
	t.Helper()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rows.Close()) })
	c = append(c, overlay.Config{Settings: apart()})
	w := &world{t: t, rows: rows, overlay: overlay.New(rows, c[0]), thread: id.NewThread()}
	graphs := graph.NewRegistry()
	require.NoError(t, graphs.Add("g", "", updater{w: w}))
	w.threads = thread.NewService(thread.Options{
		Store: rows.Threads(), Graphs: graphs, Snapshots: checkpointer.NewSnapshots(rows.Threads(), nil), Overlay: w.overlay,
	})
	w.make(w.thread)
	return w
}

// apart shows markers as messages of their own.
func apart() overlay.Settings {
	s := overlay.Defaults()
	s.Markers = overlay.SystemMarkers
	return s
}

func (w *world) make(t id.Thread) {
	w.t.Helper()
	_, err := w.threads.Create(w.t.Context(), thread.New{ID: t, Metadata: json.RawMessage(`{"graph_id":"g"}`)})
	require.NoError(w.t, err)
}

// updater is a graph whose updates are set by the test before each save.
type updater struct {
	graph.Graph
	w *world
}

func (u updater) Update(ctx context.Context, cfg graph.Config, _ checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	for _, step := range steps {
		for _, one := range step {
			u.w.updated = append(u.w.updated, one.Values)
		}
	}
	p := u.w.next("update", "", nil)
	p.Blobs = nil
	tuple, err := u.w.rows.LoadCheckpoint(ctx, checkpointer.Key{Thread: u.w.thread, ID: p.Parent})
	if err != nil {
		return checkpointer.Key{}, err
	}
	p.Data = json.RawMessage(strings.Replace(string(tuple.Data), string(p.Parent), string(p.ID), 1))
	return p.Key, cfg.Saver.Save(ctx, graph.Save{Put: p})
}

// msg is a message: type, id, content, and pairs of further text fields. A field "lc_source" goes into additional_kwargs.
type msg []string

func (m msg) msgpack(dst []byte) []byte {
	fields, kwargs := [][2]string{{"content", m[2]}}, ""
	for i := 3; i+1 < len(m); i += 2 {
		if m[i] == "lc_source" {
			kwargs = m[i+1]
			continue
		}
		fields = append(fields, [2]string{m[i], m[i+1]})
	}
	dst = msgp.AppendMapHeader(dst, uint32(len(fields)+3))
	for _, f := range fields {
		dst = msgp.AppendString(msgp.AppendString(dst, f[0]), f[1])
	}
	dst = msgp.AppendString(dst, "additional_kwargs")
	if kwargs == "" {
		dst = msgp.AppendMapHeader(dst, 0)
	} else {
		dst = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(dst, 1), "lc_source"), kwargs)
	}
	dst = msgp.AppendString(msgp.AppendString(dst, "type"), m[0])
	dst = msgp.AppendString(dst, "id")
	if m[1] == "" {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendString(dst, m[1])
}

// ms makes messages of words such as "h1" and "a2", which are type, id and content in one.
func ms(words string) (list []msg) {
	for _, word := range strings.Fields(words) {
		kind := map[byte]string{'h': "human", 'a': "ai", 't': "tool", 'S': "human", 's': "system"}[word[0]]
		m := msg{kind, word, "text of " + word}
		if word[0] == 'S' {
			m = append(m, "lc_source", "summarization")
		}
		list = append(list, m)
	}
	return list
}

// next makes a checkpoint after the newest.
func (w *world) next(source string, r id.Run, list []msg) *checkpointer.Put {
	w.n++
	cp := id.Checkpoint(uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, w.thread, w.n)).String())
	// Ids grow with time, as LangGraph's do.
	cp = id.Checkpoint(fmt.Sprintf("1f000000-0000-6%03x-%s", w.n, cp[19:]))
	version := fmt.Sprintf("%032d.0", w.n)
	data := msgp.AppendArrayHeader(nil, uint32(len(list)))
	for _, m := range list {
		data = m.msgpack(data)
	}
	p := &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{
			Key: checkpointer.Key{Thread: w.thread, ID: cp}, Parent: w.at, Run: r,
			Data: fmt.Appendf(nil, `{"v":4,"id":%q,"ts":%q,"channel_values":{"title":"T"},"channel_versions":{"messages":%q}}`,
				cp, time.Now().UTC().Format(time.RFC3339Nano), version),
			Metadata: fmt.Appendf(nil, `{"source":%q,"step":%d,"parents":{}}`, source, w.n),
			Tasks:    json.RawMessage(`[]`), Shape: "shape",
		},
		Blobs: []checkpointer.Blob{{Channel: "messages", Version: version, Type: "msgpack", Data: data}}, ShapeJSON: json.RawMessage(shapeJSON),
	}
	w.at = cp
	return p
}

// save saves a checkpoint with these messages, as a step of a run.
func (w *world) save(list []msg) id.Checkpoint {
	w.t.Helper()
	w.put(w.next("loop", "run", list))
	return w.at
}

func (w *world) put(p *checkpointer.Put) {
	w.t.Helper()
	require.NoError(w.t, saver.New(w.rows.Threads(), nil, nil).Save(w.t.Context(), graph.Save{Put: p}))
	require.NoError(w.t, w.rows.Threads().Write(w.t.Context(), func(tx thread.Tx) error {
		row, err := tx.Thread(p.Thread)
		if err != nil {
			return err
		}
		row.Head = p.ID
		return tx.UpdateThread(row)
	}))
}

// condensed saves a thread in which four messages were condensed: h1 a1 h2 a2 [marker] h3 a3.
func (w *world) condensed() *world {
	w.t.Helper()
	w.save(ms("h1 a1 h2 a2 h3"))
	w.save(ms("Sum h3"))
	w.save(ms("Sum h3 a3"))
	return w
}

const marker = "summary-marker-Sum"

func (w *world) state(ctx context.Context, at id.Checkpoint) json.RawMessage {
	w.t.Helper()
	s, err := w.threads.State(ctx, checkpointer.Key{Thread: w.thread, ID: at}, false)
	require.NoError(w.t, err)
	return s.Values
}

// ids returns the ids of the messages of values.
func ids(values []byte) string {
	var out []string
	for _, m := range gjson.GetBytes(values, "messages").Array() {
		out = append(out, m.Get("id").String())
	}
	return strings.Join(out, " ")
}

func choose(ctx context.Context, on bool) context.Context {
	return overlay.With(ctx, overlay.Choice{Overlay: &on})
}

var _ eventstore.Reader = (*sqlite.Store)(nil)
