package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/internal/seedtest"
	"understudy/run"
	"understudy/thread"
)

// What is asked for ahead changes no result, whatever a transaction reads and writes in which order: the same transactions on two threads,
// one of them with what is expected, see the same.
func TestExpectingChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: postgrestest.Database(t)})
	for seed := range seedtest.Seeds(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test
			plain, expecting := id.Thread(fmt.Sprintf("p%d", seed)), id.Thread(fmt.Sprintf("e%d", seed))
			var saw [2]strings.Builder
			last := 0
			for range 150 {
				steps, with := make([]int, 1+r.IntN(7)), r.IntN(6)
				for i := range steps {
					steps[i] = r.IntN(len(doings))
				}
				of, values := 1+r.IntN(3), rand.NewPCG(r.Uint64(), 0)
				var next int
				for i, th := range []id.Thread{plain, expecting} {
					values := *values
					next = last
					require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
						d := &doing{tx: tx, thread: th, run: id.Run(fmt.Sprint(th, "-", of)), r: rand.New(&values), last: &next, saw: &saw[i]} //nolint:gosec // a test
						d.put = checkpointer.Put{
							Checkpoint: checkpointer.Checkpoint{
								Key: checkpointer.Key{Thread: th, ID: id.Checkpoint(fmt.Sprintf("%06d", next+1))}, Parent: id.Checkpoint(fmt.Sprintf("%06d", next)),
								Run: d.run, Data: []byte(`{"channel_versions":{"messages":"1"}}`),
							},
							Blobs: []checkpointer.Blob{{Channel: "messages", Version: fmt.Sprint(next + 1), Type: "msgpack", Data: talk(next%20 + 1)}},
						}
						if i == 1 {
							d.expect(with)
						}
						for _, step := range steps {
							doings[step](d)
						}
						return nil
					}))
				}
				last = next
				clean := func(b *strings.Builder, th id.Thread) string { return strings.ReplaceAll(b.String(), string(th), "T") }
				require.Equal(t, clean(&saw[0], plain), clean(&saw[1], expecting), "steps %v, expecting %d", steps, with)
				saw[0].Reset()
				saw[1].Reset()
			}
		})
	}
}

// doing is a transaction of TestExpectingChangesNothing.
type doing struct {
	tx     *Tx
	thread id.Thread
	run    id.Run
	put    checkpointer.Put
	r      *rand.Rand
	last   *int
	saw    *strings.Builder
}

func (d *doing) expect(what int) {
	r := &run.Run{ID: d.run, Thread: d.thread}
	switch what {
	case 1:
		d.tx.ExpectCreate(d.thread)
	case 2:
		d.tx.ExpectEnd(r)
	case 3:
		d.tx.ExpectUpdate(d.thread)
	case 4:
		d.tx.ExpectSave(r)
	case 5:
		d.tx.ExpectPuts(&d.put)
		d.tx.ExpectSave(r)
	}
}

func (d *doing) say(what string, values ...any) {
	fmt.Fprint(d.saw, what, " ")
	fmt.Fprintln(d.saw, values...)
}

func (d *doing) event(kind, category string) {
	d.say("append", d.tx.AppendEvents(d.thread, []*eventstore.Event{{
		Thread: d.thread, Run: d.run, Type: kind, Category: category, MessageID: fmt.Sprint(d.r.IntN(1000)), Content: []byte(`{}`), CreatedAt: then,
	}}))
}

var then = time.Unix(1_700_000_000, 0).UTC()

var doings = []func(*doing){
	func(d *doing) {
		th, err := d.tx.Thread(d.thread)
		if err == nil {
			th.UpdatedAt = th.UpdatedAt.Add(time.Second)
			err = d.tx.UpdateThread(th)
			d.say("thread", th.UpdatedAt)
		}
		d.say("thread", err)
	},
	func(d *doing) {
		if _, err := d.tx.Thread(d.thread); err != nil {
			d.say("insert", d.tx.InsertThread(&thread.Thread{ID: d.thread, CreatedAt: then, UpdatedAt: then}))
		}
	},
	func(d *doing) {
		active, err := d.tx.HasActiveRuns(d.thread)
		d.say("active", active, err)
	},
	func(d *doing) {
		seq, err := d.tx.LastSeq(d.thread)
		d.say("seq", seq, err)
	},
	func(d *doing) { d.event("human", eventstore.CategoryMessage) },
	func(d *doing) { d.event("run.note", "") },
	func(d *doing) {
		_, err := d.tx.Run(d.thread, d.run)
		if err != nil {
			err = d.tx.InsertRun(&run.Run{ID: d.run, Thread: d.thread, Graph: "g", Attempt: 1, Status: run.Running, CreatedAt: then, UpdatedAt: then})
		}
		d.say("insert run", err)
	},
	func(d *doing) {
		r, err := d.tx.Run(d.thread, d.run)
		if err == nil {
			r.Status, r.Attempt = []run.Status{run.Pending, run.Running, run.Success, run.Error}[d.r.IntN(4)], r.Attempt+1
			err = d.tx.UpdateRun(r)
			d.say("update run", r.Status, r.Attempt)
		}
		d.say("update run", err)
	},
	func(d *doing) {
		if d.r.IntN(4) == 0 {
			d.say("delete run", d.tx.DeleteRun(d.thread, d.run))
		}
	},
	func(d *doing) {
		attempt, status, cancel, err := d.tx.Fence(d.run)
		d.say("fence", attempt, status, cancel, err)
	},
	func(d *doing) {
		latest, err := d.tx.Find(checkpointer.Key{Thread: d.thread})
		d.say("latest", latest, err)
	},
	func(d *doing) {
		head, err := d.tx.Head(d.thread)
		d.say("head", err)
		if head != nil {
			d.say("head", head.ID, head.Parent, len(head.Writes))
		}
	},
	func(d *doing) {
		if *d.last++; d.put.ID == id.Checkpoint(fmt.Sprintf("%06d", *d.last)) {
			d.say("put", d.tx.PutCheckpoint(&d.put))
		} else {
			*d.last-- // once in a transaction
		}
	},
	func(d *doing) {
		for _, c := range []id.Checkpoint{d.put.ID, d.put.Parent} {
			row, err := d.tx.TranscriptRow(d.thread, c)
			d.say("row", c, err)
			if row != nil {
				d.say("row", row.Version, row.Summary)
			}
		}
	},
	func(d *doing) {
		d.say("put row", d.tx.PutTranscriptRow(&eventstore.Row{Thread: d.thread, Checkpoint: d.put.ID, Version: fmt.Sprint(d.r.IntN(1000)), Run: d.run}))
	},
	func(d *doing) {
		d.say("messages", d.tx.RunMessages(d.thread, d.run, func(e *eventstore.Event) error {
			d.say("message", e.Seq, e.Type, string(e.Content), string(e.Metadata))
			return nil
		}))
	},
	func(d *doing) {
		d.say("put call", d.tx.PutModelCalls(d.run, []graph.ModelCall{{ID: fmt.Sprint(d.r.IntN(1000)), Model: "m"}}))
	},
	func(d *doing) {
		calls, err := d.tx.TakeModelCalls(d.run)
		slices.SortFunc(calls, func(a, b graph.ModelCall) int { return strings.Compare(a.ID, b.ID) })
		d.say("calls", calls, err)
	},
	func(d *doing) {
		if d.r.IntN(8) == 0 {
			d.say("delete", d.tx.DeleteThread(d.thread))
		}
	},
}
