// Package storagetest is the suite that every storage passes: the promises of the interfaces of
// packages assistant, thread, run, store and checkpointer, as cases. A storage runs it with a
// function that opens an empty one, and adds tests only for what it alone does.
package storagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"understudy/access/audit"
	"understudy/assistant"
	"understudy/auth"
	"understudy/bridge"
	"understudy/deerflow"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/seedtest"
	"understudy/run"
	"understudy/run/usage"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/changes"
	"understudy/thread/search"
)

// Backend is one storage, as the services use it.
type Backend struct {
	Assistants assistant.Store
	Threads    thread.Store
	Runs       run.Store
	Items      store.Backend
	Keys       auth.KeyStore
	Sessions   auth.SessionStore
	Audit      audit.Store
	Usage      usage.RebuildStore
	Search     search.Store
	Feedback   deerflow.Feedbacks
	// Reopen closes the storage and opens it again as after a restart. The old Backend must not be
	// used any more.
	// nil: the storage keeps nothing when it is closed, by design. Cases then continue with it open.
	Reopen func(t *testing.T) Backend
	// Unlist makes a range of threads as they were before the items of lists in metadata were in the index.
	Unlist func(first, last id.Thread) error
	// Touched returns what transactions have touched since the last call; nil: the storage was opened without a function for it.
	Touched func() []changes.Change
	// Overhead is how many bytes a stored value takes in addition to its own.
	Overhead int64
	// JSONB says that checkpoints and metadata come back as the same JSON, not as the same bytes.
	JSONB bool
}

// reopen is Reopen where the storage has it.
func (b Backend) reopen(t *testing.T) Backend {
	t.Helper()
	if b.Reopen == nil {
		return b
	}
	return b.Reopen(t)
}

// Loads is the group about limits in bytes, which takes long.
const Loads = "Loads"

// AnyLayout are the groups that do not depend on how checkpoints are stored: one layout shows them all.
var AnyLayout = []string{"Assistants", "Search", "Runs", "Queue", "Crons", "Deliveries", "Records", "Items", "Vectors", "Reach", "Idempotency", "Keys", "Sessions", "Feedback"}

// Run runs the suite. open returns an empty storage for the exclusive use of the test, and closes it
// when the test ends. Groups named in seldom run in make test-all only: another run of the suite has nearly the same.
func Run(t *testing.T, open func(t *testing.T) Backend, seldom ...string) {
	for _, group := range []struct {
		name  string
		cases map[string]func(*testing.T, Backend)
	}{
		{"Writes", writeCases},
		{"Assistants", assistantCases},
		{"Threads", threadCases},
		{"Search", searchCases},
		{"Runs", runCases},
		{"Queue", queueCases},
		{"Crons", cronCases},
		{"Deliveries", deliveryCases},
		{"Records", recordCases},
		{"Checkpoints", checkpointCases},
		{"Lists", listCases},
		{Loads, loadCases},
		{"Texts", textCases},
		{"Items", itemCases},
		{"Vectors", vectorCases},
		{"Retention", retentionCases},
		{"Reach", reachCases},
		{"Idempotency", idempotencyCases},
		{"Keys", keyCases},
		{"Sessions", sessionCases},
		{"Touched", touchedCases},
		{"Audit", auditCases},
		{"Limits", limitCases},
		{"Usage", usageCases},
		{"Words", searchTextCases},
		{"Feedback", feedbackCases},
	} {
		if slices.Contains(seldom, group.name) && !seedtest.InFull() {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for name, test := range group.cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, open(t))
				})
			}
		})
	}
}

// ctx is for calls that are not about contexts. A case that hangs is ended by the test's own timeout.
var ctx = context.Background()

// base is a time with microseconds, the precision that every storage keeps.
var base = time.Date(2025, 3, 4, 5, 6, 7, 123456000, time.UTC)

// at returns ascending times, a second apart.
func at(n int) time.Time { return base.Add(time.Duration(n) * time.Second) }

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// uuid returns readable IDs that sort by n.
func uuid(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

func threadID(n int) id.Thread { return id.Thread(uuid(n)) }

func runID(n int) id.Run { return id.Run(uuid(n)) }

func newThread(n int) *thread.Thread {
	return &thread.Thread{
		ID: threadID(n), CreatedAt: at(n), UpdatedAt: at(n), StateUpdatedAt: at(n), Metadata: raw(`{}`), Config: raw(`{}`), Status: thread.Idle,
	}
}

func newRun(n, th int) *run.Run {
	return &run.Run{
		ID: runID(n), Thread: threadID(th), Assistant: "a", Graph: "g", Metadata: raw(`{}`), Status: run.Pending, Strategy: run.Enqueue,
		CreatedAt: at(n), UpdatedAt: at(n),
	}
}

// write runs fn in a transaction that must succeed. fn returns errors instead of failing the test,
// because it may run on another goroutine.
func write(t *testing.T, b Backend, fn func(tx run.Tx) error) {
	t.Helper()
	require.NoError(t, b.Runs.Write(ctx, fn))
}

// keepRecords stores records of a thread.
func keepRecords(t *testing.T, b Backend, th id.Thread, records ...*bridge.Record) {
	t.Helper()
	require.NoError(t, b.Runs.KeepRecords(ctx, map[id.Thread][]*bridge.Record{th: records}))
}

func insertThreads(t *testing.T, b Backend, list ...*thread.Thread) {
	t.Helper()
	write(t, b, func(tx run.Tx) error {
		for _, th := range list {
			if err := tx.InsertThread(th); err != nil {
				return err
			}
		}
		return nil
	})
}

func insertRuns(t *testing.T, b Backend, list ...*run.Run) {
	t.Helper()
	write(t, b, func(tx run.Tx) error {
		for _, r := range list {
			if err := tx.InsertRun(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// ensureThread makes a thread that is not there.
func ensureThread(t *testing.T, b Backend, n int) {
	t.Helper()
	if _, err := b.Threads.Thread(ctx, threadID(n)); fault.Is(err, fault.NotFound) {
		insertThreads(t, b, newThread(n))
	}
}

// copyThread copies a thread; the row of the copy may be there already.
func copyThread(t *testing.T, b Backend, from, to int) {
	t.Helper()
	ensureThread(t, b, from)
	require.NoError(t, b.Threads.CopyThread(ctx, threadID(from), threadID(to), nil, func(tx thread.Tx, row *thread.Thread) error {
		row.ID = threadID(to)
		if _, err := tx.Thread(row.ID); !fault.Is(err, fault.NotFound) {
			return err
		}
		return tx.InsertThread(row)
	}))
}

// prune runs all steps of pruning a thread and returns the number of deleted checkpoints.
func prune(t *testing.T, b Backend, n int) (deleted int) {
	t.Helper()
	ensureThread(t, b, n)
	plan, err := b.Threads.PlanPrune(ctx, threadID(n), 100)
	require.NoError(t, err)
	for _, step := range plan.Steps {
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.PruneStep(threadID(n), &step) }))
		deleted += len(step.Checkpoints)
	}
	return deleted
}

// same compares whole values.
func same(t *testing.T, want, got any, opts ...cmp.Option) {
	t.Helper()
	if reflect.DeepEqual(want, got) { // cmp compares JSON byte by byte, which took most of the time of the suite
		return
	}
	opts = append(opts, cmpopts.IgnoreUnexported(run.Run{})) // of one process, not of the row
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Fatalf("not what was expected (-want +got):\n%s", diff)
	}
}

func isKind(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	require.Error(t, err)
	require.True(t, fault.Is(err, kind), "kind %d is not %d: %v", fault.KindOf(err), kind, err)
}

func threadIDs(list []*thread.Thread) []id.Thread {
	out := []id.Thread{}
	for _, th := range list {
		out = append(out, th.ID)
	}
	return out
}

func runIDs(list []*run.Run) []id.Run {
	out := []id.Run{}
	for _, r := range list {
		out = append(out, r.ID)
	}
	return out
}
