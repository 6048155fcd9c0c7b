package thread_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread"
)

// A thread that changed since it was found is left as it is: the condition is looked at in the transaction that changes it.
func TestChangesOfThreadsThatStillMatch(t *testing.T) {
	t.Parallel()
	failed := &thread.Condition{Status: thread.Errored, Metadata: json.RawMessage(`{"owner":"ada"}`)}
	hour := time.Hour
	ids := []id.Thread{"matches", "of another", "retried", "none"}
	for _, tt := range []struct {
		name   string
		change func(w *world) (thread.Pruned, error)
		left   int // checkpoints of the thread that matches
	}{
		{"keep the latest", func(w *world) (thread.Pruned, error) { return w.Prune(t.Context(), ids, thread.KeepLatest, failed) }, 1},
		{"delete", func(w *world) (thread.Pruned, error) { return w.Prune(t.Context(), ids, thread.Delete, failed) }, 0},
		{"expire", func(w *world) (out thread.Pruned, err error) {
			for _, name := range ids[:3] {
				_, err := w.Patch(t.Context(), name, thread.Patch{TTL: &thread.TTLRequest{Strategy: thread.Delete, After: &hour}, Where: failed})
				switch {
				case err == nil:
					out.Count++
				case fault.Is(err, fault.Conflict):
					out.Unmatched++
				default:
					return out, err
				}
			}
			return out, nil
		}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := setup(t, thread.Retention{})
			for name, row := range map[id.Thread]thread.Thread{
				"matches":    {Status: thread.Errored, Metadata: json.RawMessage(`{"owner":"ada","n":1}`)},
				"of another": {Status: thread.Errored, Metadata: json.RawMessage(`{"owner":"bob"}`)},
				"retried":    {Status: thread.Idle, Metadata: json.RawMessage(`{"owner":"ada"}`)},
			} {
				w.made(t, name, row)
			}
			completed := backfills{}
			w.Backfill = completed
			pruned, err := tt.change(w)
			require.NoError(t, err)
			require.Subset(t, []id.Thread{"matches"}, slices.Collect(maps.Keys(completed)), "others are not touched")
			require.Equal(t, thread.Pruned{Count: 1, Unmatched: 2}, pruned)
			require.Equal(t, tt.left, checkpoints(t, w.rows, "matches"))
			for _, name := range ids[1:3] {
				require.Equal(t, 3, checkpoints(t, w.rows, name))
				v, err := w.Get(t.Context(), name)
				require.NoError(t, err)
				require.Nil(t, v.TTL)
			}
		})
	}
}

// backfills are the threads that were completed.
type backfills map[id.Thread]bool

func (b backfills) Ensure(_ context.Context, t id.Thread, _ id.Checkpoint) error {
	b[t] = true
	return nil
}

// made makes a thread with three checkpoints and the status and metadata of a row.
func (w *world) made(t *testing.T, name id.Thread, as thread.Thread) {
	t.Helper()
	_, err := w.Create(t.Context(), thread.New{ID: name})
	require.NoError(t, err)
	grow(t, w.rows, name, 0, 3)
	require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
		row, err := tx.Thread(name)
		if err != nil {
			return err
		}
		row.Status, row.Metadata = as.Status, as.Metadata
		return tx.UpdateThread(row)
	}))
}

func TestConditionsThatAreNoJSON(t *testing.T) {
	t.Parallel()
	w := setup(t, thread.Retention{})
	_, err := w.Prune(t.Context(), []id.Thread{"a"}, thread.Delete, &thread.Condition{Metadata: json.RawMessage(`{`)})
	require.True(t, fault.Is(err, fault.Unprocessable), "%v", err)
}
