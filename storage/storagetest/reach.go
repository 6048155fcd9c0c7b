package storagetest

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/seedtest"
	"understudy/run"
	"understudy/store"
	"understudy/thread"
)

var reachCases = map[string]func(*testing.T, Backend){
	"SearchesFindWhatTheFilterMatches": searchesInReach,
	"ReadsOfAThread":                   readsInReach,
	"WritesOfAThread":                  writesInReach,
	"Assistants":                       assistantsInReach,
	"Crons":                            cronsInReach,
	"Items":                            itemsInReach,
}

// in returns a context in which only what a filter selects exists.
func in(t *testing.T, resource, filter string) context.Context {
	t.Helper()
	f, err := access.ParseFilter(raw(filter))
	require.NoError(t, err)
	return access.Narrow(ctx, resource, f)
}

// randomValue returns a value of metadata, from few, so that filters meet documents.
func randomValue(r *rand.Rand, deep bool) any {
	switch n := r.IntN(9); {
	case n < 3:
		return []string{"a", "b", "é\n"}[r.IntN(3)]
	case n < 5:
		return []any{1, 3, 3.5, 0.0}[r.IntN(4)]
	case n == 5:
		return r.IntN(2) == 0
	case n == 6:
		return nil
	case deep:
		list := []any{}
		most := 3
		if r.IntN(4) == 0 {
			most = 60 // more than there are terms of
		}
		for range r.IntN(most + 1) {
			list = append(list, randomValue(r, r.IntN(4) == 0))
		}
		return list
	}
	return []any{"3", json.RawMessage("3.0"), json.RawMessage("1.0"), "[3"}[r.IntN(4)]
}

func randomObject(r *rand.Rand, value func() any) map[string]any {
	o := map[string]any{}
	for range 1 + r.IntN(2) {
		o[[]string{"owner", "team", "k"}[r.IntN(3)]] = value()
	}
	return o
}

// randomFilter returns a valid filter.
func randomFilter(r *rand.Rand, depth int) map[string]any {
	f := randomObject(r, func() any {
		switch v := randomValue(r, true); r.IntN(4) {
		case 0:
			return map[string]any{"$eq": v}
		case 1:
			return map[string]any{"$contains": v}
		default:
			return v
		}
	})
	if depth < 2 && r.IntN(2) == 0 {
		var list []any
		for range 2 + r.IntN(2) {
			list = append(list, randomFilter(r, depth+1))
		}
		f[[]string{"$or", "$and"}[r.IntN(2)]] = list
		if r.IntN(2) == 0 {
			for _, k := range []string{"owner", "team", "k"} {
				delete(f, k)
			}
		}
	}
	return f
}

func encoded(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// Match and the indexes agree: a search in reach of a filter finds what the same search finds elsewhere and Match selects, in the same order and pages.
func searchesInReach(t *testing.T, b Backend) {
	for seed := range seedtest.Seeds(12) {
		searchInReach(t, b, rand.New(rand.NewPCG(seed, 0)), int(seed)*100)
	}
}

func searchInReach(t *testing.T, b Backend, r *rand.Rand, from int) {
	write(t, b, func(tx run.Tx) error {
		for n := range 60 {
			row := newThread(from + n)
			row.UpdatedAt = at(r.IntN(40)) // some at the same time
			row.Metadata = encoded(t, randomObject(r, func() any { return randomValue(r, true) }))
			row.Status = []thread.Status{thread.Idle, thread.Busy}[r.IntN(2)]
			if err := tx.InsertThread(row); err != nil {
				return err
			}
		}
		return nil
	})
	for n := range 60 {
		switch n {
		case 20:
			require.NoError(t, b.Unlist(threadID(from), threadID(from+39)))
		case 40:
			_, err := b.Threads.ListThreads(ctx, func() bool { return true })
			require.NoError(t, err)
		}
		if n%5 == 4 { // what was counted for searches before is no longer so
			write(t, b, func(tx run.Tx) error {
				row, err := tx.Thread(threadID(from + r.IntN(60)))
				if err != nil {
					return err
				}
				row.Metadata = encoded(t, randomObject(r, func() any { return randomValue(r, true) }))
				return tx.UpdateThread(row)
			})
		}
		source := encoded(t, randomFilter(r, 0))
		f, err := access.ParseFilter(source)
		require.NoError(t, err, "%s", source)
		narrow := access.Narrow(ctx, access.Threads, f)
		q := thread.Query{Ascending: r.IntN(2) == 0, SortBy: []string{"", "updated_at", "created_at", "status"}[r.IntN(4)]}
		if r.IntN(3) == 0 {
			q.Metadata = encoded(t, randomObject(r, func() any { return randomValue(r, false) }))
		}
		if r.IntN(3) == 0 {
			q.Status = thread.Idle
		}
		if r.IntN(4) == 0 {
			for n := range 20 {
				q.IDs = append(q.IDs, threadID(from+3*n))
			}
		}
		all, err := b.Threads.Threads(ctx, q)
		require.NoError(t, err)
		want := []id.Thread{}
		for _, row := range all {
			if f.Match(row.Metadata) {
				want = append(want, row.ID)
			}
		}
		n, err := b.Threads.CountThreads(narrow, q)
		require.NoError(t, err)
		require.Equal(t, len(want), n, "count of %s in %s", q.Metadata, source)
		q.Offset, q.Limit = r.IntN(3), 1+r.IntN(20)
		page, err := b.Threads.Threads(narrow, q)
		require.NoError(t, err)
		got := []id.Thread{}
		for _, row := range page {
			got = append(got, row.ID)
		}
		want = want[min(q.Offset, len(want)):min(q.Offset+q.Limit, len(want))]
		require.Equal(t, want, got, "search by %q of %s, %s in %s", q.SortBy, q.Metadata, q.Status, source)
	}
}

// owned inserts a thread of an actor with a run, a checkpoint and a record.
func owned(t *testing.T, b Backend, n int, owner string) {
	t.Helper()
	row := newThread(n)
	row.Metadata = encoded(t, map[string]any{"owner": owner})
	r := newRun(n, n)
	r.Kwargs.Resumable = true
	write(t, b, func(tx run.Tx) error {
		if err := tx.InsertThread(row); err != nil {
			return err
		}
		if err := tx.InsertRun(r); err != nil {
			return err
		}
		put := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{Key: checkpointer.Key{Thread: row.ID, ID: "c1"}, Data: raw(`{"v":4,"id":"c1","channel_versions":{}}`), Metadata: raw(`{"source":"input"}`), Run: r.ID}}
		if err := tx.PutCheckpoint(put); err != nil {
			return err
		}
		if err := tx.MarkGone(row.ID, at(1)); err != nil {
			return err
		}
		if err := tx.PutSpans(r.ID, &run.SpanBatch{Spans: 1, At: at(1), Body: raw(`{}`)}); err != nil {
			return err
		}
		return nil
	})
	keepRecords(t, b, row.ID, &bridge.Record{Run: r.ID, Offset: bridge.Offset{MS: 1, N: 1}, Event: "values", Data: raw(`{}`), Kept: true})
}

// seen returns what reads of a thread in a context find of it.
func seen(t *testing.T, b Backend, ctx context.Context, n int) map[string]bool { //nolint:revive // the context is what is tested
	t.Helper()
	found := map[string]bool{}
	is := func(what string, there bool, err error) {
		if !fault.Is(err, fault.NotFound) {
			require.NoError(t, err, what)
		}
		if err == nil && there {
			found[what] = true
		}
	}
	th, r, at := threadID(n), runID(n), checkpointer.Key{Thread: threadID(n), ID: "c1"}
	_, err := b.Runs.Thread(ctx, th)
	is("thread", true, err)
	_, err = b.Runs.Run(ctx, th, r)
	is("run", true, err)
	_, err = b.Runs.Run(ctx, "", r)
	is("run alone", true, err)
	runs, err := b.Runs.Runs(ctx, th, run.Query{})
	is("runs", len(runs) > 0, err)
	runs, err = b.Runs.Runs(ctx, th, run.Query{Status: run.Pending})
	is("pending runs", len(runs) > 0, err)
	runs, err = b.Runs.ActiveRuns(ctx, th)
	is("active runs", len(runs) > 0, err)
	active, err := b.Runs.ActiveThreads(ctx, run.Active{}, "", 1)
	is("active threads", slices.Contains(active, th), err)
	tuple, err := b.Threads.LoadCheckpoint(ctx, at)
	is("checkpoint", tuple != nil, err)
	tuple, err = b.Threads.LoadCheckpoint(ctx, checkpointer.Key{Thread: th})
	is("latest checkpoint", tuple != nil, err)
	list, err := b.Threads.ListCheckpoints(ctx, checkpointer.List{Thread: th})
	is("checkpoints", len(list) > 0, err)
	list, err = b.Threads.ListCheckpoints(ctx, checkpointer.List{Thread: th, ID: "c1"})
	is("checkpoints of an id", len(list) > 0, err)
	records, err := b.Runs.Records(ctx, th, bridge.Offset{}, 10)
	is("records", len(records) > 0, err)
	any := false
	err = b.Runs.RunRecords(ctx, th, r, bridge.Offset{}, func(*bridge.Record) error { any = true; return nil })
	is("records of the run", any, err)
	gone, err := b.Runs.EventsGone(ctx, th)
	is("events that are gone", !gone.IsZero(), err)
	usage, err := b.Threads.Usage(ctx, th)
	is("usage", usage.Checkpoints.Rows > 0, err)
	spans, err := b.Runs.SpanBatches(ctx, th, r)
	is("spans", len(spans) > 0, err)
	steps, err := b.Threads.Tree(ctx, th, "", 10)
	is("tree", len(steps) > 0, err)
	recent, _, err := b.Runs.RecentRuns(ctx, run.Recent{Limit: 1000})
	is("recent runs", slices.ContainsFunc(recent, func(x *run.Run) bool { return x.Thread == th }), err)
	_, err = b.Threads.PlanPrune(ctx, th, 10)
	is("prune", true, err)
	return found
}

// Every read of a thread that the context does not reach finds what it finds where there is no thread.
func readsInReach(t *testing.T, b Backend) {
	owned(t, b, 1, "alice")
	owned(t, b, 2, "bob")
	alice := in(t, access.Threads, `{"owner":"alice"}`)
	everything := seen(t, b, ctx, 1)
	require.Len(t, everything, 19)
	delete(everything, "active threads")
	mine := seen(t, b, alice, 1)
	require.True(t, mine["active threads"])
	delete(mine, "active threads")
	require.Equal(t, everything, mine)
	require.Empty(t, seen(t, b, alice, 2))
	require.Empty(t, seen(t, b, alice, 3))
	require.Len(t, seen(t, b, access.Everything(alice), 1), 19)
	require.Empty(t, seen(t, b, access.Narrow(alice, access.Threads, must(access.ParseFilter(raw(`{"team":"red"}`)))), 1))

	// A thread that is deleted, and made again by another actor.
	write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
	owned(t, b, 1, "bob")
	require.Empty(t, seen(t, b, alice, 1))

	err := b.Threads.CopyThread(alice, threadID(2), threadID(9), nil, func(thread.Tx, *thread.Thread) error { return nil })
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	require.NoError(t, b.Threads.CopyThread(in(t, access.Threads, `{"owner":"bob"}`), threadID(2), threadID(9), nil, func(tx thread.Tx, row *thread.Thread) error {
		row.ID = threadID(9)
		return tx.InsertThread(row)
	}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A transaction finds nothing of a thread that its context does not reach, and does not replace it.
func writesInReach(t *testing.T, b Backend) {
	owned(t, b, 1, "alice")
	owned(t, b, 2, "bob")
	alice := in(t, access.Threads, `{"owner":"alice"}`)
	require.NoError(t, b.Runs.Write(alice, func(tx run.Tx) error {
		for n, there := range map[int]bool{1: true, 2: false, 3: false} {
			_, err := tx.Thread(threadID(n))
			require.Equal(t, !there, fault.Is(err, fault.NotFound), "thread %d: %v", n, err)
			_, err = tx.Run(threadID(n), runID(n))
			require.Equal(t, !there, fault.Is(err, fault.NotFound), "run %d: %v", n, err)
			active, err := tx.ActiveRuns(threadID(n))
			require.NoError(t, err)
			require.Equal(t, there, len(active) > 0, "active runs of thread %d", n)
		}
		return nil
	}))
	for n, kind := range map[int]fault.Kind{2: fault.Conflict, 1: fault.Conflict} {
		err := b.Runs.Write(alice, func(tx run.Tx) error { return tx.InsertThread(newThread(n)) })
		require.True(t, fault.Is(err, kind), "%d: %v", n, err)
	}
	err := b.Runs.Write(alice, func(tx run.Tx) error { return tx.UpdateThread(newThread(2)) })
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	err = b.Runs.Write(alice, func(tx run.Tx) error { return tx.DeleteThread(threadID(2)) })
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	// What a transaction inserts exists for it, whatever its metadata.
	require.NoError(t, b.Runs.Write(alice, func(tx run.Tx) error {
		row := newThread(5)
		if err := tx.InsertThread(row); err != nil {
			return err
		}
		if _, err := tx.Thread(row.ID); err != nil {
			return err
		}
		return tx.InsertRun(newRun(5, 5))
	}))
	_, err = b.Runs.Thread(alice, threadID(5))
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
}

func assistantsInReach(t *testing.T, b Backend) {
	const a, z = id.Assistant("00000000-0000-7000-8000-00000000000a"), id.Assistant("00000000-0000-7000-8000-00000000000b")
	require.NoError(t, b.Assistants.Write(ctx, func(tx assistant.Tx) error {
		for i, owner := range map[id.Assistant]string{a: "alice", z: "bob"} {
			row := &assistant.Assistant{ID: i, GraphID: "g", Config: raw(`{}`), Context: raw(`{}`), Metadata: encoded(t, map[string]any{"owner": owner}), Version: 1, CreatedAt: at(1), UpdatedAt: at(1)}
			if err := tx.InsertAssistant(row); err != nil {
				return err
			}
		}
		return nil
	}))
	alice := in(t, access.Assistants, `{"owner":"alice"}`)
	for range 2 { // the second time some are in a cache
		for i, there := range map[id.Assistant]bool{a: true, z: false} {
			_, err := b.Assistants.Assistant(alice, i)
			require.Equal(t, !there, fault.Is(err, fault.NotFound), "%s: %v", i, err)
			_, err = b.Runs.Assistant(alice, i)
			require.Equal(t, !there, fault.Is(err, fault.NotFound), "%s: %v", i, err)
			_, err = b.Assistants.Versions(alice, i, nil, 10, 0)
			require.Equal(t, !there, fault.Is(err, fault.NotFound), "%s: %v", i, err)
			err = b.Runs.Write(alice, func(tx run.Tx) error { _, err := tx.Assistant(i); return err })
			require.Equal(t, !there, fault.Is(err, fault.NotFound), "%s: %v", i, err)
			_, err = b.Assistants.Assistant(ctx, i)
			require.NoError(t, err)
		}
	}
	list, err := b.Assistants.Assistants(alice, assistant.Query{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	n, err := b.Assistants.CountAssistants(alice, assistant.Query{})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	err = b.Assistants.Write(alice, func(tx assistant.Tx) error {
		return tx.InsertAssistant(&assistant.Assistant{ID: z, GraphID: "g", Config: raw(`{}`), Context: raw(`{}`), Metadata: raw(`{}`), Version: 1, CreatedAt: at(1), UpdatedAt: at(1)})
	})
	require.True(t, fault.Is(err, fault.Conflict), "%v", err)
	write(t, b, func(tx run.Tx) error {
		for n, owner := range map[int]string{1: "alice", 2: "bob"} {
			row := newThread(n)
			row.Metadata = encoded(t, map[string]any{"owner": owner, "assistant_id": a})
			if err := tx.InsertThread(row); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, b.Assistants.Write(in(t, access.Threads, `{"owner":"alice"}`), func(tx assistant.Tx) error {
		of, err := tx.ThreadsOf(a)
		require.Equal(t, []id.Thread{threadID(1)}, of)
		return err
	}))
}

func cronsInReach(t *testing.T, b Backend) {
	write(t, b, func(tx run.Tx) error {
		for _, owner := range []string{"alice", "bob"} {
			if err := tx.InsertCron(&run.Cron{ID: id.Cron(owner), Assistant: "a", Schedule: "* * * * *", Payload: raw(`{}`), Metadata: encoded(t, map[string]any{"owner": owner}), CreatedAt: at(1), UpdatedAt: at(1)}); err != nil {
				return err
			}
		}
		return nil
	})
	alice := in(t, access.Crons, `{"owner":"alice"}`)
	for i, there := range map[id.Cron]bool{"alice": true, "bob": false} {
		_, err := b.Runs.Cron(alice, i)
		require.Equal(t, !there, fault.Is(err, fault.NotFound), "%s: %v", i, err)
		err = b.Runs.Write(alice, func(tx run.Tx) error { _, err := tx.Cron(i); return err })
		require.Equal(t, !there, fault.Is(err, fault.NotFound), "%s: %v", i, err)
	}
	for _, q := range []run.CronQuery{{}, {Assistant: "a"}} {
		list, err := b.Runs.Crons(alice, q)
		require.NoError(t, err)
		require.Len(t, list, 1)
		n, err := b.Runs.CountCrons(alice, q)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
}

// The filter of a search is on the value, in addition to the client's own.
func itemsInReach(t *testing.T, b Backend) {
	require.NoError(t, b.Items.Apply(ctx, []*store.Item{
		{Namespace: []string{"n"}, Key: "k0", Value: raw(`{"owner":"alice","n":0}`), CreatedAt: at(1), UpdatedAt: at(1)},
		{Namespace: []string{"n"}, Key: "k1", Value: raw(`{"owner":"bob","n":1}`), CreatedAt: at(1), UpdatedAt: at(1)},
		{Namespace: []string{"n", "below"}, Key: "k2", Value: raw(`{"owner":"alice","n":2}`), CreatedAt: at(1), UpdatedAt: at(1)},
	}))
	alice := in(t, access.Store, `{"owner":"alice"}`)
	for filter, want := range map[string]int{``: 2, `{"n":0}`: 1, `{"n":1}`: 0, `{"owner":"bob"}`: 0} {
		for _, prefix := range [][]string{nil, {"n"}} {
			list, err := b.Items.Items(alice, store.Search{Prefix: prefix, Filter: raw(filter), Limit: 10})
			require.NoError(t, err)
			require.Len(t, list, want, "%s below %v", filter, prefix)
		}
	}
	list, err := b.Items.Items(alice, store.Search{Prefix: []string{"n"}, Limit: 10, Offset: 1})
	require.NoError(t, err)
	require.Len(t, list, 1)
}
