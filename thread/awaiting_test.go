package thread

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/id"
)

// busyStore has one busy thread and its due runs.
type busyStore struct {
	Store
	due []id.Run
}

func (s *busyStore) Thread(_ context.Context, t id.Thread) (*Thread, error) {
	return &Thread{ID: t, Status: Busy}, nil
}

func (s *busyStore) DueRuns(context.Context, id.Thread, time.Time) ([]id.Run, error) {
	return s.due, nil
}

// busySnapshots has the checkpoints of a thread by id; "" is the head.
type busySnapshots struct {
	Snapshots
	all map[id.Checkpoint]*checkpointer.Snapshot
}

func (s busySnapshots) State(_ context.Context, k checkpointer.Key, _ bool) (*checkpointer.Snapshot, error) {
	return s.all[k.ID], nil
}

// What is next while runs of a thread are due and nothing is next in its head. Checkpoints are listed from the oldest to the head: who saved them, and their tasks,
// which are done.
func TestNextOfABusyThread(t *testing.T) {
	t.Parallel()
	type saved struct {
		by    id.Run
		tasks []string
	}
	one, two := []string{"one"}, []string{"left", "right"}
	for name, c := range map[string]struct {
		due         []id.Run
		checkpoints []saved
		next        []string
	}{
		"a run waits, nothing was saved":                     {[]id.Run{"a"}, nil, []string{startNode}},
		"a run waits after one that is over":                 {[]id.Run{"b"}, []saved{{"a", one}, {"a", nil}}, []string{startNode}},
		"a run waits after one that was interrupted":         {[]id.Run{"b"}, []saved{{"a", one}}, []string{startNode}},
		"a run waits after an update":                        {[]id.Run{"b"}, []saved{{"a", nil}, {"", nil}}, []string{startNode}},
		"between two checkpoints":                            {[]id.Run{"a"}, []saved{{"a", one}}, one},
		"between two checkpoints, of parallel tasks":         {[]id.Run{"a"}, []saved{{"a", one}, {"a", two}}, two},
		"between two checkpoints, and another run waits":     {[]id.Run{"a", "b"}, []saved{{"a", two}}, two},
		"between two checkpoints, of the second run":         {[]id.Run{"b", "c"}, []saved{{"a", one}, {"b", two}}, two},
		"a crashed run waits to be resumed":                  {[]id.Run{"a"}, []saved{{"z", two}, {"a", one}}, one},
		"a crashed run waits, and had saved nothing":         {[]id.Run{"a"}, []saved{{"z", two}}, []string{startNode}},
		"at the end of the last run":                         {[]id.Run{"a"}, []saved{{"a", one}, {"a", nil}}, []string{}},
		"at the end of a run, and another waits":             {[]id.Run{"a", "b"}, []saved{{"a", one}, {"a", nil}}, []string{startNode}},
		"after a cancelled run":                              {nil, []saved{{"a", one}}, []string{}},
		"a run waits after a cancelled one":                  {[]id.Run{"b"}, []saved{{"z", nil}, {"a", two}}, []string{startNode}},
		"after a run that was rolled back":                   {nil, []saved{{"z", nil}}, []string{}},
		"a run waits after one that was rolled back":         {[]id.Run{"b"}, []saved{{"z", nil}}, []string{startNode}},
		"an update at the end of a run, and another waits":   {[]id.Run{"a", "b"}, []saved{{"a", nil}, {"", nil}}, []string{startNode}},
		"an update before the first checkpoint of a new run": {[]id.Run{"a"}, []saved{{"z", one}, {"", nil}}, []string{startNode}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &busyStore{due: c.due}
			all := map[id.Checkpoint]*checkpointer.Snapshot{"": {Key: checkpointer.Key{Thread: "t"}, Next: []string{}}}
			for i, one := range c.checkpoints {
				at := id.Checkpoint(fmt.Sprint("c", i))
				snap := &checkpointer.Snapshot{Key: checkpointer.Key{Thread: "t", ID: at}, Next: []string{}, Metadata: []byte(`{"source":"update"}`)}
				if one.by != "" {
					snap.Metadata = fmt.Appendf(nil, `{"source":"loop","run_id":%q}`, one.by)
				}
				for _, task := range one.tasks {
					snap.Tasks = append(snap.Tasks, checkpointer.Task{Name: task})
				}
				all[at], all[""] = snap, snap
			}
			s := NewService(Options{Store: store, Snapshots: busySnapshots{all: all}})
			got, err := s.State(t.Context(), checkpointer.Key{Thread: "t"}, false)
			require.NoError(t, err)
			require.Equal(t, c.next, got.Next)
			require.Equal(t, all[""].ID, got.ID, "the head is shown")
			require.Empty(t, all[""].Next, "a snapshot that others have is as it was")
		})
	}
}
