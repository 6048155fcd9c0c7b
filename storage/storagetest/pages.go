package storagetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/eventstore"
	"understudy/run"
)

// RunPages runs the part of the suite that is about pages of events and of messages. open is as
// for Run.
func RunPages(t *testing.T, open func(t *testing.T) Backend) {
	for name, test := range pageCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func pager(t *testing.T, b Backend) eventstore.Pager {
	t.Helper()
	p, ok := b.Threads.(eventstore.Pager)
	require.True(t, ok, "the store of threads gives no pages")
	return p
}

// readPage returns the seqs of a page, and whether there are more.
type readPage func(q eventstore.PageQuery) (seqs []int, more bool)

func reading(t *testing.T, page func(q eventstore.PageQuery) (*eventstore.Page, error)) readPage {
	t.Helper()
	return func(q eventstore.PageQuery) ([]int, bool) {
		p, err := page(q)
		require.NoError(t, err)
		require.Empty(t, p.Rest)
		loadedInPieces(t, page, q, p)
		seqs := []int{}
		for _, e := range p.Rows {
			require.Equal(t, q.Thread, e.Thread)
			seqs = append(seqs, int(e.Seq))
		}
		return seqs, p.More
	}
}

// loadedInPieces reads a page with bounds on what is loaded at once: its rows are those of the
// whole page.
func loadedInPieces(t *testing.T, page func(q eventstore.PageQuery) (*eventstore.Page, error), q eventstore.PageQuery, whole *eventstore.Page) {
	t.Helper()
	for _, bytes := range []int{1, 300, 1 << 20} {
		q.Bytes = bytes
		p, err := page(q)
		require.NoError(t, err)
		require.Equal(t, whole.More, p.More)
		var got []*eventstore.Event
		for size := 0; ; size = 0 {
			for _, row := range p.Rows {
				size += len(row.Content)
			}
			require.True(t, len(p.Rows) <= 1 || size <= bytes, "%d rows of %d bytes where %d were requested", len(p.Rows), size, bytes)
			for n := len(p.Rows); n > 0; n-- {
				row, err := p.Next(t.Context(), bytes)
				require.NoError(t, err)
				got = append(got, row)
			}
			if len(p.Rest) == 0 {
				break
			}
			row, err := p.Next(t.Context(), bytes)
			require.NoError(t, err)
			p.Rows = append([]*eventstore.Event{row}, p.Rows...)
		}
		_, err = p.Next(t.Context(), bytes)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, whole.Rows, got)
	}
}

// walk reads all pages, forwards or backwards.
func walk(t *testing.T, read readPage, q eventstore.PageQuery) (all []int) {
	t.Helper()
	for {
		seqs, more := read(q)
		if q.Backward {
			all = append(slices.Clone(seqs), all...)
		} else {
			all = append(all, seqs...)
		}
		if !more {
			return all
		}
		require.Len(t, seqs, q.Limit)
		if q.Backward {
			q.Before = eventstore.Seq(seqs[0])
		} else {
			q.After = eventstore.Seq(seqs[len(seqs)-1])
		}
	}
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

var pageCases = map[string]func(*testing.T, Backend){
	"pages of the log": func(t *testing.T, b Backend) {
		write(t, b, func(tx run.Tx) error {
			for i := range 30 {
				e := &eventstore.Event{Run: runID(1 + i%3), Type: fmt.Sprint("t", i%2), Category: "x", CreatedAt: at(i)}
				if i%10 == 9 {
					e.Run, e.Type = "", "ai_message"
				}
				if err := tx.AppendEvents(threadID(1), []*eventstore.Event{e}); err != nil {
					return err
				}
			}
			return tx.AppendEvents(threadID(2), []*eventstore.Event{{Type: "t0", Category: "x", CreatedAt: at(1)}})
		})
		p := pager(t, b)
		read := reading(t, func(q eventstore.PageQuery) (*eventstore.Page, error) { return p.LogPage(ctx, q) })
		type query = eventstore.PageQuery
		for _, limit := range []int{1, 2, 7, 29, 30, 31, 1000} {
			for _, backward := range []bool{false, true} {
				q := query{Thread: threadID(1), Limit: limit, Backward: backward}
				require.Equal(t, upTo(30), walk(t, read, q), "%+v", q)
				q.Types = []string{eventstore.TypeAI}
				require.Equal(t, []int{10, 20, 30}, walk(t, read, q), "%+v", q)
				q.Types = []string{"t1", "nothing", "ai_tool_call"}
				require.Equal(t, []int{2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}, walk(t, read, q), "%+v", q)
				q.Run = runID(2)
				require.Equal(t, []int{2, 8, 14, 26}, walk(t, read, q), "%+v", q)
				q.Types = nil
				require.Equal(t, []int{2, 5, 8, 11, 14, 17, 23, 26, 29}, walk(t, read, q), "%+v", q)
				require.Equal(t, []int{1}, walk(t, read, query{Thread: threadID(2), Limit: limit, Backward: backward}))
			}
		}
		for name, tt := range map[string]struct {
			q    query
			want []int
			more bool
		}{
			"after":                   {query{After: 10, Limit: 2}, []int{11, 12}, true},
			"before":                  {query{Before: 10, Backward: true, Limit: 2}, []int{8, 9}, true},
			"before the second":       {query{Before: 2, Backward: true, Limit: 2}, []int{1}, false},
			"before the first":        {query{Before: 1, Backward: true, Limit: 2}, []int{}, false},
			"between":                 {query{After: 3, Before: 6, Limit: 2}, []int{4, 5}, false},
			"between, with more":      {query{After: 3, Before: 7, Limit: 2}, []int{4, 5}, true},
			"between nothing":         {query{After: 7, Before: 3, Limit: 2}, []int{}, false},
			"beyond the end":          {query{After: 30, Limit: 2}, []int{}, false},
			"far beyond the end":      {query{After: 1<<63 - 1, Limit: 2}, []int{}, false},
			"before far beyond":       {query{Before: 1<<63 - 1, Backward: true, Limit: 2}, []int{29, 30}, true},
			"another thread's":        {query{Thread: threadID(3), Limit: 2}, []int{}, false},
			"an unknown run's":        {query{Run: runID(9), Limit: 2}, []int{}, false},
			"the last page, to a row": {query{After: 28, Limit: 2}, []int{29, 30}, false},
		} {
			if tt.q.Thread == "" {
				tt.q.Thread = threadID(1)
			}
			seqs, more := read(tt.q)
			require.Equal(t, tt.want, seqs, name)
			require.Equal(t, tt.more, more, name)
		}
		page, err := p.LogPage(ctx, query{Thread: threadID(1), After: 9, Limit: 1})
		require.NoError(t, err)
		same(t, log(t, b, 1)[9:10], page.Rows)
	},
	"messages are as they are now, where they were first": func(t *testing.T, b Backend) {
		started := &eventstore.Event{Run: runID(1), Type: eventstore.TypeRunStart, Category: eventstore.CategoryTrace, CreatedAt: at(1)}
		write(t, b, func(tx run.Tx) error { return tx.AppendEvents(threadID(1), []*eventstore.Event{started}) })
		revised := talk(1, 3, 2, 2, "a", "b", "c")
		revised.Blobs[0].Data = revise(revised.Blobs[0].Data, "b")
		records(t, b, talk(1, 1, 0, 1, "a", "b"), talk(1, 2, 1, 1, "a", "b", "c"), revised) // seqs 2, 3; 4; 5 revises 3
		twice := talk(1, 4, 3, 2, "a", "b", "c")
		records(t, b, twice)                        // 6 revises 3
		records(t, b, talk(1, 5, 4, 3, "c", "new")) // 7 marker, 8
		p := pager(t, b)
		rows := func(q eventstore.PageQuery) []*eventstore.Event {
			q.Thread, q.Limit = threadID(1), 50
			page, err := p.MessagePage(ctx, q)
			require.NoError(t, err)
			return page.Rows
		}
		all := rows(eventstore.PageQuery{})
		var got []string
		for _, e := range all {
			got = append(got, fmt.Sprint(e.Seq, " ", e.Run[len(e.Run)-1:], " ", e.Type, " ", eventstore.Text(e.Content)))
		}
		require.Equal(t, []string{"2 1 llm.human.input a", "3 1 llm.human.input b", "4 1 llm.human.input c", "7 3 middleware:summarize ", "8 3 llm.human.input new"}, got)
		var marker struct {
			After int `json:"after_seq"`
		}
		require.NoError(t, json.Unmarshal(all[3].Metadata, &marker))
		require.Equal(t, 3, marker.After)
		require.JSONEq(t, string(log(t, b, 1)[6].Metadata), string(all[3].Metadata), "it is known when it is recorded")
		require.Equal(t, eventstore.Seq(3), log(t, b, 1)[5].First, "a revision of a revision")

		read := reading(t, func(q eventstore.PageQuery) (*eventstore.Page, error) { return p.MessagePage(ctx, q) })
		for _, backward := range []bool{false, true} {
			for limit := 1; limit < 7; limit++ {
				q := eventstore.PageQuery{Thread: threadID(1), Limit: limit, Backward: backward}
				require.Equal(t, []int{2, 3, 4, 7, 8}, walk(t, read, q))
				q.Run = runID(1)
				require.Equal(t, []int{2, 3, 4}, walk(t, read, q))
				q.Run = runID(3)
				require.Equal(t, []int{7, 8}, walk(t, read, q))
				q.Run = runID(2)
				require.Empty(t, walk(t, read, q), "it said nothing of its own")
			}
		}
		require.Empty(t, rows(eventstore.PageQuery{After: 8}))
		require.Empty(t, rows(eventstore.PageQuery{Before: 1, Backward: true}))

		// Another branch has another transcript, and the raw log has both.
		records(t, b, talk(1, 6, 1, 4, "a", "b", "else"))
		require.Equal(t, []int{2, 3, 9}, walk(t, read, eventstore.PageQuery{Thread: threadID(1), Limit: 2}))
		require.Len(t, log(t, b, 1), 9)
		require.Equal(t, []int{2, 3, 4, 7, 8}, walk(t, read, eventstore.PageQuery{Thread: threadID(1), Limit: 2, At: talk(1, 5, 4, 3).ID}))
		require.Empty(t, walk(t, read, eventstore.PageQuery{Thread: threadID(1), Limit: 2, At: "unknown"}))

		copyThread(t, b, 1, 2)
		require.Equal(t, []int{2, 3, 9}, walk(t, read, eventstore.PageQuery{Thread: threadID(2), Limit: 2}))
	},
	"runs are known by their rows and by their events": func(t *testing.T, b Backend) {
		insertRuns(t, b, newRun(1, 1))
		write(t, b, func(tx run.Tx) error {
			return tx.AppendEvents(threadID(1), []*eventstore.Event{{Run: runID(2), Type: "x", CreatedAt: at(1)}})
		})
		for n, want := range map[int]bool{1: true, 2: true, 3: false} {
			known, err := pager(t, b).KnowsRun(ctx, threadID(1), runID(n))
			require.NoError(t, err)
			require.Equal(t, want, known, n)
			known, err = pager(t, b).KnowsRun(ctx, threadID(2), runID(n))
			require.NoError(t, err)
			require.False(t, known)
		}
	},
	"pages have no gaps while a run is writing": func(t *testing.T, b Backend) {
		const steps = 150
		p := pager(t, b)
		var done atomic.Bool
		ended := make(chan error, 1)
		go func() {
			defer done.Store(true)
			said := []string{}
			for n := 1; n <= steps; n++ {
				said = append(said, fmt.Sprint("m", n))
				list := said
				if n%20 == 0 { // the older half was condensed
					said = slices.Clone(said[len(said)/2:])
					list = said
				}
				err := b.Runs.Write(ctx, func(tx run.Tx) error {
					if err := tx.AppendEvents(threadID(1), []*eventstore.Event{{Run: runID(1), Type: "x", Category: "trace", CreatedAt: at(n)}}); err != nil {
						return err
					}
					return record(tx, talk(1, n, n-1, 1, list...))
				})
				if err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
		follow := func(page func(eventstore.PageQuery) (*eventstore.Page, error)) (rows []*eventstore.Event) {
			q := eventstore.PageQuery{Thread: threadID(1), Limit: 3}
			for {
				last := done.Load()
				p, err := page(q)
				require.NoError(t, err)
				for _, e := range p.Rows {
					require.Greater(t, e.Seq, q.After)
					q.After = e.Seq
				}
				rows = append(rows, p.Rows...)
				if last && !p.More {
					return rows
				}
			}
		}
		type result struct{ log, messages []*eventstore.Event }
		var got result
		inLog := make(chan struct{})
		go func() {
			defer close(inLog)
			got.log = follow(func(q eventstore.PageQuery) (*eventstore.Page, error) { return p.LogPage(ctx, q) })
		}()
		got.messages = follow(func(q eventstore.PageQuery) (*eventstore.Page, error) { return p.MessagePage(ctx, q) })
		<-inLog
		require.NoError(t, <-ended)
		same(t, log(t, b, 1), got.log)
		whole, err := p.MessagePage(ctx, eventstore.PageQuery{Thread: threadID(1), Limit: 10 * steps})
		require.NoError(t, err)
		require.Equal(t, seqsOf(whole.Rows), seqsOf(got.messages))
		var said []string
		for _, e := range got.messages {
			if e.Category == eventstore.CategoryMessage {
				said = append(said, eventstore.Text(e.Content))
			}
		}
		require.Len(t, said, steps)
		require.Equal(t, "m1", said[0])
		require.Equal(t, fmt.Sprint("m", steps), said[steps-1])
	},
}

func seqsOf(rows []*eventstore.Event) []eventstore.Seq {
	seqs := []eventstore.Seq{}
	for _, e := range rows {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

// revise replaces the content of a message in talk's list by one of the same length, so that the
// bytes around it stay.
func revise(data []byte, said string) []byte {
	from := append(msgp.AppendString(nil, "content"), msgp.AppendString(nil, said)...)
	to := append(msgp.AppendString(nil, "content"), msgp.AppendString(nil, strings.ToUpper(said))...)
	return bytes.Replace(data, from, to, 1)
}
