package storagetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/run"
)

// eventReader is the part of a storage that reads the log. The store of threads has it.
func eventReader(t *testing.T, b Backend) eventstore.Reader {
	t.Helper()
	r, ok := b.Threads.(eventstore.Reader)
	require.True(t, ok, "the store of threads reads no events")
	return r
}

// talk is a root checkpoint whose messages are texts: their ids are what they say.
func talk(th, n, parent, by int, texts ...string) *checkpointer.Put {
	data := msgp.AppendArrayHeader(nil, uint32(len(texts)))
	for _, text := range texts {
		data = msgp.AppendMapHeader(data, 3)
		for _, field := range [][2]string{{"type", "human"}, {"content", text}, {"id", text}} {
			data = msgp.AppendString(msgp.AppendString(data, field[0]), field[1])
		}
	}
	p := put(checkpointer.Key{Thread: threadID(th), ID: checkpointID(n)}, "", raw(`{"source":"loop","step":1}`),
		checkpointer.Blob{Channel: "messages", Version: fmt.Sprint("v", n), Type: "msgpack", Data: data})
	if parent > 0 {
		p.Parent = checkpointID(parent)
	}
	p.Run = runID(by)
	return p
}

func checkpointID(n int) id.Checkpoint { return id.Checkpoint(uuid(n)) }

func record(tx run.Tx, p *checkpointer.Put) error {
	if err := tx.PutCheckpoint(p); err != nil {
		return err
	}
	return eventstore.Record(tx, eventstore.FactsOf(p))
}

func records(t *testing.T, b Backend, list ...*checkpointer.Put) {
	t.Helper()
	write(t, b, func(tx run.Tx) error {
		for _, p := range list {
			if err := record(tx, p); err != nil {
				return err
			}
		}
		return nil
	})
}

func transcript(t *testing.T, b Backend, th, n int) *eventstore.Transcript {
	t.Helper()
	tr, err := eventstore.TranscriptAt(ctx, eventReader(t, b), threadID(th), checkpointID(n))
	require.NoError(t, err)
	return tr
}

// texts returns what is shown at a checkpoint, "*" for markers; nil if nothing was recorded.
func texts(t *testing.T, b Backend, th, n int) []string {
	t.Helper()
	tr := transcript(t, b, th, n)
	if tr == nil {
		return nil
	}
	out := []string{}
	require.NoError(t, eventReader(t, b).EachContent(ctx, threadID(th), eventstore.Ranges(tr.Entries), func(e *eventstore.Event) error {
		if e.Type == eventstore.TypeSummarize {
			out = append(out, "*")
			return nil
		}
		var m struct{ Content string }
		err := json.Unmarshal(e.Content, &m)
		out = append(out, m.Content)
		return err
	}))
	return out
}

func log(t *testing.T, b Backend, th int) []*eventstore.Event {
	t.Helper()
	events, err := eventReader(t, b).Events(ctx, threadID(th), 0, 0)
	require.NoError(t, err)
	for i, e := range events {
		require.Equal(t, eventstore.Seq(i+1), e.Seq)
		require.Equal(t, threadID(th), e.Thread)
	}
	return events
}

// RunEvents runs the part of the suite that is about events and transcripts. open is as for Run.
func RunEvents(t *testing.T, open func(t *testing.T) Backend) {
	for _, cases := range []map[string]func(*testing.T, Backend){eventCases, backfillCases} {
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, open(t))
			})
		}
	}
}

var eventCases = map[string]func(*testing.T, Backend){
	"events come back as they were": func(t *testing.T, b Backend) {
		e := &eventstore.Event{
			Run: runID(1), Type: "a", Category: "b", MessageID: "m", Content: []byte(`{"x":"é"}`), Metadata: raw(`{"y": 1}`), CreatedAt: at(1),
			Digest: []byte{1, 2}, Anonymous: true,
		}
		bare := &eventstore.Event{Type: "c", Category: "d", CreatedAt: at(2)}
		write(t, b, func(tx run.Tx) error { return tx.AppendEvents(threadID(1), []*eventstore.Event{e, bare}) })
		require.Equal(t, []eventstore.Seq{1, 2}, []eventstore.Seq{e.Seq, bare.Seq})
		same(t, []*eventstore.Event{e, bare}, log(t, b, 1))
		require.Empty(t, log(t, b, 2))
		page, err := eventReader(t, b).Events(ctx, threadID(1), 1, 5)
		require.NoError(t, err)
		same(t, []*eventstore.Event{bare}, page)
		page, err = eventReader(t, b).Events(ctx, threadID(1), 0, 1)
		require.NoError(t, err)
		same(t, []*eventstore.Event{e}, page)
	},
	"seqs have no gaps, whichever server writes": func(t *testing.T, b Backend) {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 25 {
					err := b.Runs.Write(ctx, func(tx run.Tx) error {
						if err := tx.AppendEvents(threadID(1), []*eventstore.Event{{Type: "x", CreatedAt: at(1)}}); err != nil {
							return err
						}
						if i%5 == w {
							return errBoom
						}
						return nil
					})
					if err != nil && !errors.Is(err, errBoom) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, log(t, b, 1), 80)
	},
	"transcripts follow checkpoints": func(t *testing.T, b Backend) {
		records(t, b, talk(1, 1, 0, 1, "a", "b"), talk(1, 2, 1, 1, "a", "b", "c", "d"))
		records(t, b, talk(1, 3, 2, 1, "d", "e"), talk(1, 4, 1, 2, "a", "b", "f"))
		require.Equal(t, []string{"a", "b"}, texts(t, b, 1, 1))
		require.Equal(t, []string{"a", "b", "c", "*", "d", "e"}, texts(t, b, 1, 3))
		require.Equal(t, []string{"a", "b", "f"}, texts(t, b, 1, 4))
		require.Nil(t, texts(t, b, 1, 5))
		b = b.reopen(t)
		records(t, b, talk(1, 5, 3, 3, "d", "e", "g"))
		require.Equal(t, []string{"a", "b", "c", "*", "d", "e", "g"}, texts(t, b, 1, 5))
	},
	"partial answers are shown, replaced and dropped": func(t *testing.T, b Backend) {
		answer := func(n, by int, mid, text string) {
			write(t, b, func(tx run.Tx) error {
				kept, err := eventstore.RecordPartial(tx, threadID(1), checkpointID(n), runID(by), at(1),
					[]eventstore.Partial{{ID: mid, Message: raw(fmt.Sprintf(`{"type":"ai","content":%q,"id":%q}`, text, mid)), Step: 2}})
				require.True(t, kept)
				return err
			})
		}
		records(t, b, talk(1, 1, 0, 1, "a"))
		answer(1, 1, "p", "half")
		require.Equal(t, []string{"a", "half"}, texts(t, b, 1, 1))
		last := log(t, b, 1)
		require.JSONEq(t, fmt.Sprintf(`{"checkpoint_id":%q,"step":2,"partial":true}`, string(checkpointID(1))), string(last[len(last)-1].Metadata))
		b = b.reopen(t)
		records(t, b, talk(1, 2, 1, 2, "a", "b"))
		require.Equal(t, []string{"a", "half", "b"}, texts(t, b, 1, 2))
		records(t, b, talk(1, 3, 2, 2, "a", "b", "p"))
		require.Equal(t, []string{"a", "p", "b"}, texts(t, b, 1, 3))
		answer(3, 3, "q", "again")
		n := len(log(t, b, 1))
		require.Equal(t, []string{"a", "p", "b", "again"}, texts(t, b, 1, 3))
		write(t, b, func(tx run.Tx) error {
			return eventstore.DropPartial(tx, threadID(1), checkpointID(3), map[eventstore.Seq]bool{eventstore.Seq(n): true})
		})
		b = b.reopen(t)
		require.Equal(t, []string{"a", "p", "b"}, texts(t, b, 1, 3))
		require.Len(t, log(t, b, 1), n)
	},
	"a failed write records nothing": func(t *testing.T, b Backend) {
		records(t, b, talk(1, 1, 0, 1, "a"))
		require.ErrorIs(t, b.Runs.Write(ctx, func(tx run.Tx) error {
			if err := record(tx, talk(1, 2, 1, 1, "a", "lost")); err != nil {
				return err
			}
			return errBoom
		}), errBoom)
		require.Len(t, log(t, b, 1), 1)
		// The same checkpoint again, with other events under the same seqs.
		records(t, b, talk(1, 2, 1, 1, "a", "b"))
		records(t, b, talk(1, 3, 2, 1, "a", "b", "c"))
		require.Equal(t, []string{"a", "b", "c"}, texts(t, b, 1, 3))
	},
	"a copy has events of its own": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		records(t, b, talk(1, 1, 0, 1, "a", "b"), talk(1, 2, 1, 1, "b", "c"))
		copyThread(t, b, 1, 2)
		require.Equal(t, texts(t, b, 1, 2), texts(t, b, 2, 2))
		records(t, b, talk(2, 3, 2, 1, "b", "c", "d"))
		want := []string{"a", "*", "b", "c", "d"}
		require.Equal(t, want, texts(t, b, 2, 3))
		require.Len(t, log(t, b, 1), 4)
		require.Len(t, log(t, b, 2), 5)

		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		require.Empty(t, log(t, b, 1))
		require.Nil(t, texts(t, b, 1, 2))
		require.Equal(t, want, texts(t, b, 2, 3), "what is shared stays while someone has it")
		old := transcript(t, b, 2, 3)
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(2)) })
		require.Empty(t, log(t, b, 2))

		insertThreads(t, b, newThread(1), newThread(2))
		records(t, b, talk(1, 2, 0, 1, "new"))
		require.Equal(t, []string{"new"}, texts(t, b, 1, 2))
		records(t, b, talk(2, 2, 0, 1, "a"))
		if made := transcript(t, b, 2, 2); old.Log != 0 || made.Log != 0 {
			require.NotEqual(t, old.Log, made.Log, "another thread's log")
			require.Equal(t, made.Log, transcript(t, b, 2, 2).Log)
		}
	},
	"a run that is rolled back leaves its events marked": func(t *testing.T, b Backend) {
		records(t, b, talk(1, 1, 0, 1, "a"), talk(1, 2, 1, 2, "a", "b"))
		write(t, b, func(tx run.Tx) error {
			if err := tx.RollBackEvents(threadID(1), runID(2)); err != nil {
				return err
			}
			return tx.DeleteRunCheckpoints(threadID(1), runID(2), false)
		})
		events := log(t, b, 1)
		require.Len(t, events, 2)
		for i, marked := range []bool{false, true} {
			var m struct {
				RolledBack bool `json:"rolled_back"`
				Step       int
			}
			require.NoError(t, json.Unmarshal(events[i].Metadata, &m))
			require.Equal(t, marked, m.RolledBack)
			require.Equal(t, 1, m.Step, "the rest of the metadata stays")
		}
		require.Nil(t, texts(t, b, 1, 2))
		records(t, b, talk(1, 3, 1, 3, "a", "c"))
		require.Equal(t, []string{"a", "c"}, texts(t, b, 1, 3))
	},
	"pruning keeps the transcript of the head": func(t *testing.T, b Backend) {
		records(t, b, talk(1, 1, 0, 1, "a", "b"), talk(1, 2, 1, 1, "a", "b", "c"), talk(1, 3, 2, 1, "c", "d"))
		prune(t, b, 1)
		require.Nil(t, texts(t, b, 1, 2))
		records(t, b, talk(1, 4, 3, 1, "c", "d", "e"))
		require.Equal(t, []string{"a", "b", "*", "c", "d", "e"}, texts(t, b, 1, 4))
	},
	"what clients asked for is found": func(t *testing.T, b Backend) {
		k := checkpointer.Key{Thread: threadID(1), ID: checkpointID(1)}
		const null = "00000000-0000-0000-0000-000000000000"
		w := func(task, channel, path, data string) checkpointer.Write {
			return checkpointer.Write{TaskID: task, Channel: channel, Path: path, Type: "msgpack", Data: []byte(data)}
		}
		write(t, b, func(tx run.Tx) error {
			nested := k
			nested.NS = "sub:1"
			r := newRun(1, 1)
			r.Kwargs.Input, r.Kwargs.Command = raw(`{"messages": []}`), raw(`{"resume": 1}`)
			return firstError(
				tx.InsertRun(r),
				tx.PutWrites(k, []checkpointer.Write{w("a", "messages", "~__pregel_pull, __start__", "start")}),
				tx.PutWrites(k, []checkpointer.Write{w(null, "messages", "", "null")}),
				tx.PutWrites(k, []checkpointer.Write{w("b", "messages", "~__pregel_pull, model", "node")}),
				tx.PutWrites(k, []checkpointer.Write{w("c", "other", "~__pregel_pull, __start__", "other")}),
				tx.PutWrites(nested, []checkpointer.Write{w("d", "messages", "~__pregel_pull, __start__", "nested")}),
				tx.PutCheckpoint(talk(1, 1, 0, 1, "a")),
			)
		})
		write(t, b, func(tx run.Tx) error {
			values, err := tx.ClientWrites(k.Thread, k.ID, "messages")
			if err != nil {
				return err
			}
			got := map[string]bool{}
			for _, v := range values {
				got[v.Type+" "+string(v.Data)] = true
			}
			same(t, map[string]bool{"msgpack start": true, "msgpack null": true}, got)

			input, command, err := tx.RunInput(runID(1))
			same(t, []string{`{"messages": []}`, `{"resume": 1}`}, []string{string(input), string(command)})
			if err != nil {
				return err
			}
			if input, command, err = tx.RunInput(runID(2)); input != nil || command != nil || err != nil {
				return fmt.Errorf("an unknown run has input %s, command %s, %w", input, command, err)
			}
			typ, _, err := tx.ChannelValue(k.Thread, "messages", "v1")
			same(t, "msgpack", typ)
			return err
		})
	},
}
