package storagetest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/run"
	"understudy/thread"
	"understudy/thread/changes"
)

// Touched collects what a storage reports.
type Touched struct {
	mu   sync.Mutex
	list []changes.Change
}

// Add is for Options.Touched of a storage.
func (c *Touched) Add(list []changes.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, list...)
}

// Take returns what was added since the last call, each once and in order of IDs.
func (c *Touched) Take() []changes.Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	slices.SortFunc(list, func(a, b changes.Change) int {
		return strings.Compare(string(a.Thread+"/")+string(a.Run), string(b.Thread+"/")+string(b.Run))
	})
	return slices.Compact(list)
}

var touchedCases = map[string]func(*testing.T, Backend){
	"RowsOfListsAreReported": touchedRows,
}

// What changes a row that lists show is reported after its commit; what is undone, or changes nothing that they show, is not.
func touchedRows(t *testing.T, b Backend) {
	if b.Touched == nil {
		return // the run of the suite that repeats each write
	}
	require.Empty(t, b.Touched())
	row, first := newThread(1), newRun(1, 1)
	ofThread, ofRun := changes.Change{Thread: row.ID}, changes.Change{Thread: row.ID, Run: first.ID}
	for _, step := range []struct {
		name string
		fn   func(tx run.Tx) error
		want []changes.Change
	}{
		{"insert thread", func(tx run.Tx) error { return tx.InsertThread(row) }, []changes.Change{ofThread}},
		{"insert run", func(tx run.Tx) error { return tx.InsertRun(first) }, []changes.Change{ofRun}},
		{"read", func(tx run.Tx) error {
			_, err := tx.Run(row.ID, first.ID)
			return err
		}, nil},
		{"claim", func(tx run.Tx) error {
			first.Status, first.Attempt, first.LeaseUntil = run.Running, 1, at(20)
			return tx.UpdateRun(first)
		}, []changes.Change{ofRun}},
		{"renew", func(tx run.Tx) error {
			first.LeaseUntil = at(40)
			return tx.UpdateRun(first)
		}, nil},
		{"finish", func(tx run.Tx) error {
			first.Status, row.Status, row.Metadata = run.Success, thread.Idle, raw(`{"title":"x"}`)
			return errors.Join(tx.UpdateRun(first), tx.UpdateThread(row))
		}, []changes.Change{ofThread, ofRun}},
		{"delete run", func(tx run.Tx) error { return tx.DeleteRun(row.ID, first.ID) }, []changes.Change{ofRun}},
		{"delete thread", func(tx run.Tx) error { return tx.DeleteThread(row.ID) }, []changes.Change{ofThread}},
	} {
		write(t, b, step.fn)
		require.Equal(t, step.want, b.Touched(), step.name)
	}
	undone := errors.New("undone")
	require.ErrorIs(t, b.Runs.Write(ctx, func(tx run.Tx) error {
		return errors.Join(tx.InsertThread(newThread(2)), undone)
	}), undone)
	require.Empty(t, b.Touched())
}
