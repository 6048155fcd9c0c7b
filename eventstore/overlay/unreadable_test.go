package overlay_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/thread"
)

// What cannot be read is named in states, where the checkpoint itself has null.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	texts := func(values []byte) (out []string) {
		for _, m := range gjson.GetBytes(values, "messages").Array() {
			out = append(out, m.Get("content").String())
		}
		return out
	}
	w := setup(t)
	first := w.save(ms("h1 a1"))
	p := w.next("loop", "run", ms("h1 a1"))
	p.Blobs[0].Data = append([]byte{0x93}, append(p.Blobs[0].Data[1:], 0xd4, 9, 1)...) // and an unknown extension
	w.put(p)
	want := []string{"text of h1", "text of a1", "[This message cannot be read: msgpack extension 9]"}
	require.Equal(t, want, texts(w.state(t.Context(), p.ID)))
	require.Equal(t, want, texts(w.state(t.Context(), "")))
	require.Equal(t, "null", gjson.GetBytes(w.state(choose(t.Context(), false), ""), "messages.2").Raw, "the graph's own")

	sealed := w.next("loop", "run", nil)
	sealed.Blobs[0].Type, sealed.Blobs[0].Data = "msgpack+aes", []byte("secret")
	w.put(sealed)
	want = append(want, "[What was said here cannot be read: msgpack+aes]")
	require.Equal(t, want, texts(w.state(t.Context(), sealed.ID)))
	require.Equal(t, want, texts(w.state(t.Context(), "")))
	require.Equal(t, want[:2], texts(w.state(t.Context(), first)))
}

// A thread without recordings shows its condensed messages on the first read of any kind.
func TestBackfilled(t *testing.T) {
	t.Parallel()
	const seen = "h1 a1 h2 a2 " + marker + " h3 a3"
	for name, read := range map[string]func(w *world) string{
		"state":      func(w *world) string { return ids(w.state(t.Context(), "")) },
		"checkpoint": func(w *world) string { return ids(w.state(t.Context(), w.at)) },
		"history": func(w *world) string {
			list, err := w.threads.History(t.Context(), thread.HistoryQuery{Thread: w.thread})
			require.NoError(t, err)
			require.Len(t, list, 3)
			require.Equal(t, "h1 a1 h2 a2 h3", ids(list[2].Values))
			return ids(list[0].Values)
		},
		"thread": func(w *world) string {
			v, err := w.threads.Get(t.Context(), w.thread)
			require.NoError(t, err)
			return ids(v.Values)
		},
		"copy": func(w *world) string {
			v, err := w.threads.Copy(t.Context(), w.thread)
			require.NoError(t, err)
			require.NoError(t, w.threads.Delete(t.Context(), w.thread))
			return ids(v.Values)
		},
		"pruned": func(w *world) string {
			_, err := w.threads.Prune(t.Context(), []id.Thread{w.thread}, "keep_latest", nil)
			require.NoError(t, err)
			return ids(w.state(t.Context(), ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			for _, list := range [][]msg{ms("h1 a1 h2 a2 h3"), ms("Sum h3"), ms("Sum h3 a3")} {
				p := w.next("loop", "run", list)
				require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
					row, err := tx.Thread(p.Thread)
					if err != nil {
						return err
					}
					row.Head = p.ID
					if err := tx.UpdateThread(row); err != nil {
						return err
					}
					return tx.PutCheckpoint(p)
				}))
			}
			require.Equal(t, "Sum h3 a3", ids(w.state(t.Context(), "")), "not yet")
			b := eventstore.NewBackfiller(w.rows)
			w.threads = thread.NewService(thread.Options{
				Store: w.rows.Threads(), Graphs: w.threads.Graphs, Snapshots: checkpointer.NewSnapshots(w.rows.Threads(), nil),
				Overlay: overlay.New(b.Reader(w.rows), overlay.Config{Settings: apart()}), Backfill: b,
			})
			require.Equal(t, seen, read(w))
		})
	}
}
