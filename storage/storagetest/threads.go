package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/thread"
)

var threadCases = map[string]func(*testing.T, Backend){
	"every field comes back as it was": func(t *testing.T, b Backend) {
		full := &thread.Thread{
			ID: threadID(1), CreatedAt: at(1), UpdatedAt: at(2), StateUpdatedAt: at(3),
			// Numbers that no float holds, keys in no order, space, an escape.
			Metadata: raw(`{"z": 12345678901234567890, "a":0.10,"b":1e400, "t":"\u00e9<é"}`), Config: raw(`{"configurable":{"x":1}}`),
			Status: thread.Interrupted, Touched: true, Head: "1ef", Interrupts: raw(`{"t":[{"id":"i","value":1}]}`),
			Error: raw(`{"error":"E","message":"m"}`), TTL: &thread.TTL{Strategy: thread.KeepLatest, After: 90 * time.Second}, StreamHigh: 1 << 50,
		}
		insertThreads(t, b, full)
		got, err := b.Threads.Thread(ctx, full.ID)
		require.NoError(t, err)
		same(t, full, got)
		got, err = b.Runs.Thread(ctx, full.ID)
		require.NoError(t, err)
		same(t, full, got)

		bare := newThread(2)
		insertThreads(t, b, bare)
		got, err = b.Threads.Thread(ctx, bare.ID)
		require.NoError(t, err)
		same(t, bare, got)

		// An update writes the whole row: also what became empty.
		full.Interrupts, full.Error, full.TTL, full.Head, full.Touched = nil, nil, nil, "", false
		write(t, b, func(tx run.Tx) error { return tx.UpdateThread(full) })
		got, err = b.Threads.Thread(ctx, full.ID)
		require.NoError(t, err)
		same(t, full, got)
	},
	"conflict and not found": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		isKind(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.InsertThread(newThread(1)) }), fault.Conflict)
		isKind(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.UpdateThread(newThread(2)) }), fault.NotFound)
		isKind(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.DeleteThread(threadID(2)) }), fault.NotFound)
		isKind(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			_, err := tx.Thread(threadID(2))
			return err
		}), fault.NotFound)
	},
	"active runs": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		active := func() (found bool) {
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) (err error) {
				found, err = tx.HasActiveRuns(threadID(1))
				return err
			}))
			return found
		}
		insertRuns(t, b, newRun(9, 2))
		require.False(t, active())
		r := newRun(1, 1)
		insertRuns(t, b, r)
		require.True(t, active())
		for _, s := range []run.Status{run.Running, run.Success} {
			r.Status = s
			write(t, b, func(tx run.Tx) error { return tx.UpdateRun(r) })
			require.Equal(t, !s.Over(), active())
		}
	},
	"deleting takes everything along": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		fill := func(th int) {
			r := newRun(th, th)
			write(t, b, func(tx run.Tx) error {
				k := checkpointer.Key{Thread: threadID(th), ID: "c"}
				return firstError(
					tx.InsertRun(r),
					tx.InsertCron(newCron(th, func(c *run.Cron) { c.Thread = threadID(th) })),
					tx.PutCheckpoint(put(k, "", nil, blob("x", "1", "v"))),
					tx.PutWrites(k, []checkpointer.Write{{TaskID: "t", Channel: "x", Type: "msgpack", Data: []byte("w")}}),
				)
			})
			keepRecords(t, b, threadID(th), &bridge.Record{Offset: bridge.Offset{MS: 1}, Run: r.ID, Event: "e", Data: []byte("1")})
			require.NoError(t, b.Threads.KeepAnswer(ctx, checkpointer.Key{Thread: threadID(th), ID: "c"}, "k", raw(`1`)))
		}
		fill(1)
		fill(2)
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })

		_, err := b.Threads.Thread(ctx, threadID(1))
		isKind(t, err, fault.NotFound)
		_, err = b.Runs.Run(ctx, threadID(1), runID(1))
		isKind(t, err, fault.NotFound)
		_, err = b.Runs.Cron(ctx, cronID(1))
		isKind(t, err, fault.NotFound)
		due, err := b.Runs.NextDue(ctx)
		require.NoError(t, err)
		require.Equal(t, at(2), due) // that of the other thread

		// A thread with the same id starts from nothing.
		insertThreads(t, b, newThread(1))
		list, err := b.Threads.ListCheckpoints(ctx, checkpointer.List{Thread: threadID(1)})
		require.NoError(t, err)
		require.Empty(t, list)
		answer, err := b.Threads.LoadAnswer(ctx, checkpointer.Key{Thread: threadID(1), ID: "c"}, "k")
		require.NoError(t, err)
		require.Nil(t, answer)
		records, err := b.Runs.Records(ctx, threadID(1), bridge.Offset{}, 0)
		require.NoError(t, err)
		require.Empty(t, records)
		write(t, b, func(tx run.Tx) error {
			return tx.PutCheckpoint(put(checkpointer.Key{Thread: threadID(1), ID: "c"}, "", nil, blob("x", "1", "new")))
		})
		tuple, err := b.Threads.LoadCheckpoint(ctx, checkpointer.Key{Thread: threadID(1)})
		require.NoError(t, err)
		require.Equal(t, "new", string(tuple.Blobs[0].Data))
		require.Empty(t, tuple.Writes)

		other, err := b.Threads.LoadCheckpoint(ctx, checkpointer.Key{Thread: threadID(2)})
		require.NoError(t, err)
		require.Len(t, other.Writes, 1)
	},
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

var searchCases = map[string]func(*testing.T, Backend){
	"order, ties and pages": func(t *testing.T, b Backend) {
		// Three threads share each time and status: only the id orders them.
		var all []*thread.Thread
		for n := range 30 {
			th := newThread(n)
			th.CreatedAt, th.UpdatedAt, th.StateUpdatedAt = at(n/3), at(-n/3), at(n%5)
			th.Status = []thread.Status{thread.Idle, thread.Busy}[n%2]
			th.Metadata = raw(fmt.Sprintf(`{"all":true,"mod":%d}`, n%3))
			all = append(all, th)
		}
		insertThreads(t, b, all...)
		key := map[string]func(*thread.Thread) string{
			"":                 func(th *thread.Thread) string { return fmt.Sprint(th.UpdatedAt.UnixMicro()) },
			"updated_at":       func(th *thread.Thread) string { return fmt.Sprint(th.UpdatedAt.UnixMicro()) },
			"created_at":       func(th *thread.Thread) string { return fmt.Sprint(th.CreatedAt.UnixMicro()) },
			"state_updated_at": func(th *thread.Thread) string { return fmt.Sprint(th.StateUpdatedAt.UnixMicro()) },
			"status":           func(th *thread.Thread) string { return string(th.Status) },
			"thread_id":        func(th *thread.Thread) string { return "" },
		}
		filters := map[string]struct {
			q    thread.Query
			pass func(n int) bool
		}{
			"all":               {thread.Query{}, func(int) bool { return true }},
			"status":            {thread.Query{Status: thread.Busy}, func(n int) bool { return n%2 == 1 }},
			"metadata":          {thread.Query{Metadata: raw(`{"mod":1}`)}, func(n int) bool { return n%3 == 1 }},
			"metadata, status":  {thread.Query{Metadata: raw(`{"mod":1.0,"all":true}`), Status: thread.Idle}, func(n int) bool { return n%3 == 1 && n%2 == 0 }},
			"ids":               {thread.Query{IDs: []id.Thread{threadID(7), threadID(4), threadID(99), threadID(5)}}, func(n int) bool { return n == 4 || n == 5 || n == 7 }},
			"ids, metadata":     {thread.Query{IDs: []id.Thread{threadID(7), threadID(5)}, Metadata: raw(`{"mod":1}`)}, func(n int) bool { return n == 7 }},
			"nothing like this": {thread.Query{Metadata: raw(`{"mod":"1"}`)}, func(int) bool { return false }},
		}
		for name, filter := range filters {
			for by, key := range key {
				for _, ascending := range []bool{true, false} {
					var want []*thread.Thread
					for n, th := range all {
						if filter.pass(n) {
							want = append(want, th)
						}
					}
					slices.SortFunc(want, func(x, y *thread.Thread) int {
						kx, ky := key(x)+"\x00"+string(x.ID), key(y)+"\x00"+string(y.ID)
						if (kx < ky) == ascending {
							return -1
						}
						return 1
					})
					q := filter.q
					q.SortBy, q.Ascending = by, ascending
					got, err := b.Threads.Threads(ctx, q)
					require.NoError(t, err)
					require.Equal(t, threadIDs(want), threadIDs(got), "%s by %q, ascending %v", name, by, ascending)
					n, err := b.Threads.CountThreads(ctx, q)
					require.NoError(t, err)
					require.Equal(t, len(want), n)

					q.Bytes = 100
					bounded, err := b.Threads.Threads(ctx, q)
					require.NoError(t, err)
					require.Len(t, bounded, len(got))
					for i, loaded := 0, 0; i < len(got); i++ {
						var want *thread.Thread
						want, loaded = q.Fit(got[i], loaded)
						require.Equal(t, want, bounded[i])
					}
					q.Bytes = 0

					var pages []*thread.Thread
					q.Limit = 4
					for q.Offset = 0; ; q.Offset += q.Limit {
						page, err := b.Threads.Threads(ctx, q)
						require.NoError(t, err)
						if len(page) == 0 {
							break
						}
						pages = append(pages, page...)
					}
					require.Equal(t, threadIDs(want), threadIDs(pages), "pages of %s by %q, ascending %v", name, by, ascending)
				}
			}
		}
		_, err := b.Threads.Threads(ctx, thread.Query{SortBy: "metadata; DROP TABLE threads"})
		isKind(t, err, fault.Invalid)
	},
	"containment": func(t *testing.T, b Backend) {
		docs := []string{
			`{"user":"u1","n":1,"tags":["a","b"],"nested":{"x":{"y":1,"z":2}},"big":12345678901234567890,"none":null,"flag":true}`,
			`{"user":"u2","n":1.0,"tags":["a"],"nested":{"x":{"y":2}},"big":12345678901234567891,"flag":1}`,
			`{"user":"u1","text":"1","é":"\u00e9"}`,
			`{}`,
		}
		for n, doc := range docs {
			th := newThread(n)
			th.Metadata = raw(doc)
			insertThreads(t, b, th)
		}
		tests := []struct {
			query string
			want  []int
		}{
			{`{}`, []int{0, 1, 2, 3}},
			{`{"user":"u1"}`, []int{0, 2}},
			{`{"n":1}`, []int{0, 1}},
			{`{"n":10e-1}`, []int{0, 1}},
			{`{"n":"1"}`, nil},
			{`{"tags":["a"]}`, []int{1}},
			{`{"tags":["a","b"]}`, []int{0}},
			{`{"tags":["b","a"]}`, nil},
			{`{"nested":{}}`, []int{0, 1}},
			{`{"nested":{"x":{"y":1}}}`, []int{0}},
			{`{"nested":{"x":{"y":1}},"user":"u1"}`, []int{0}},
			{`{"nested":{"x":{"y":1}},"user":"u2"}`, nil},
			{`{"big":12345678901234567890}`, []int{0}},
			{`{"none":null}`, []int{0}},
			{`{"flag":true}`, []int{0}},
			{`{"\u00e9":"é"}`, []int{2}},
			{`{"absent":null}`, nil},
			{`{"user":{"$eq":"u1"}}`, nil},
		}
		for _, tt := range tests {
			q := thread.Query{Metadata: raw(tt.query), SortBy: "thread_id", Ascending: true}
			var want []id.Thread
			for _, n := range tt.want {
				want = append(want, threadID(n))
			}
			got, err := b.Threads.Threads(ctx, q)
			require.NoError(t, err, tt.query)
			require.ElementsMatch(t, want, threadIDs(got), tt.query)
			n, err := b.Threads.CountThreads(ctx, q)
			require.NoError(t, err)
			require.Equal(t, len(want), n, tt.query)
		}
		_, err := b.Threads.Threads(ctx, thread.Query{Metadata: raw(`{"broken`)})
		isKind(t, err, fault.Invalid)
	},
	"a search follows updates": func(t *testing.T, b Backend) {
		find := func(query string) []id.Thread {
			got, err := b.Threads.Threads(ctx, thread.Query{Metadata: raw(query)})
			require.NoError(t, err)
			return threadIDs(got)
		}
		first, second := newThread(1), newThread(2)
		first.Metadata, second.Metadata = raw(`{"k":"v","a":1}`), raw(`{"k":"v"}`)
		insertThreads(t, b, first, second)
		require.Equal(t, []id.Thread{threadID(2), threadID(1)}, find(`{"k":"v"}`))

		first.UpdatedAt = at(3)
		write(t, b, func(tx run.Tx) error { return tx.UpdateThread(first) })
		require.Equal(t, []id.Thread{threadID(1), threadID(2)}, find(`{"k":"v"}`))

		first.Metadata = raw(`{"k":"w"}`) // at the same time
		write(t, b, func(tx run.Tx) error { return tx.UpdateThread(first) })
		require.Equal(t, []id.Thread{threadID(2)}, find(`{"k":"v"}`))
		require.Equal(t, []id.Thread{threadID(1)}, find(`{"k":"w"}`))
		require.Empty(t, find(`{"a":1}`))

		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(first.ID) })
		require.Empty(t, find(`{"k":"w"}`))
	},
	"text of any length and kind": func(t *testing.T, b Backend) {
		long := ""
		for range 100 {
			long += "0123456789"
		}
		first, second := newThread(1), newThread(2)
		first.Metadata = raw(`{"k":"` + long + `","` + long + `":1,"q":"'; --","s":"a\u0000b"}`)
		second.Metadata = raw(`{"k":"` + long + `x"}`)
		insertThreads(t, b, first, second)
		for _, query := range []string{`{"k":"` + long + `"}`, `{"` + long + `":1}`, `{"q":"'; --"}`, `{"s":"a\u0000b"}`} {
			got, err := b.Threads.Threads(ctx, thread.Query{Metadata: raw(query)})
			require.NoError(t, err)
			require.Equal(t, []id.Thread{first.ID}, threadIDs(got), query)
		}
	},
	"common terms": func(t *testing.T, b Backend) {
		// More than a storage reads whole: the ways of a search must agree.
		const n = 3000
		write(t, b, func(tx run.Tx) error {
			for i := range n {
				th := newThread(i)
				th.CreatedAt = at(-i)
				th.Metadata = raw(fmt.Sprintf(`{"graph_id":"agent","mod":%d,"half":%d}`, i%1000, i%2))
				if err := tx.InsertThread(th); err != nil {
					return err
				}
			}
			return nil
		})
		tests := []struct {
			q    thread.Query
			want []int
		}{
			{thread.Query{Metadata: raw(`{"graph_id":"agent"}`)}, []int{2999, 2998, 2997}},
			{thread.Query{Metadata: raw(`{"graph_id":"agent"}`), SortBy: "created_at"}, []int{0, 1, 2}},
			{thread.Query{Metadata: raw(`{"graph_id":"agent","half":1}`)}, []int{2999, 2997, 2995}},
			{thread.Query{Metadata: raw(`{"graph_id":"agent","mod":7}`)}, []int{2007, 1007, 7}},
			{thread.Query{Metadata: raw(`{"half":1,"mod":7}`), SortBy: "created_at"}, []int{7, 1007, 2007}},
			{thread.Query{Metadata: raw(`{"half":0,"mod":7}`)}, []int{}},
		}
		for _, tt := range tests {
			tt.q.Limit = 3
			want := []id.Thread{}
			for _, n := range tt.want {
				want = append(want, threadID(n))
			}
			got, err := b.Threads.Threads(ctx, tt.q)
			require.NoError(t, err)
			require.Equal(t, want, threadIDs(got), "%s by %q", tt.q.Metadata, tt.q.SortBy)
		}
		count, err := b.Threads.CountThreads(ctx, thread.Query{Metadata: raw(`{"half":1,"graph_id":"agent"}`)})
		require.NoError(t, err)
		require.Equal(t, n/2, count)
	},
}
