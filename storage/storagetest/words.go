package storagetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/eventstore"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
	"understudy/thread/search"
)

var searchTextCases = map[string]func(*testing.T, Backend){
	"TheIndexFindsWhatTheTextsHave": searchFindsTexts,
	"OffLeavesNothing":              searchOff,
}

// say appends messages to the log of a thread, in a run of its own.
func say(tx run.Tx, t id.Thread, r id.Run, texts ...string) error {
	var events []*eventstore.Event
	for _, text := range texts {
		content, err := json.Marshal(map[string]any{"type": "human", "content": text})
		if err != nil {
			return err
		}
		events = append(events, &eventstore.Event{
			Run: r, Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, MessageID: "m", Content: content, Metadata: raw(`{}`), CreatedAt: at(1),
		}, &eventstore.Event{Run: r, Type: "run.end", Category: eventstore.CategoryOutputs, Content: content, Metadata: raw(`{}`), CreatedAt: at(1)})
	}
	return tx.AppendEvents(t, events)
}

// indexAll indexes everything that waits.
func indexAll(t *testing.T, b Backend) {
	t.Helper()
	for {
		list, err := b.Search.ToIndex(ctx, 7)
		require.NoError(t, err)
		for i := range list {
			list[i].Words, list[i].Size = search.Words(eventstore.Text(list[i].Content)), len(list[i].Content)
		}
		require.NoError(t, b.Search.PutWords(ctx, list))
		require.NoError(t, b.Search.PutWords(ctx, list), "twice, by two servers")
		if len(list) == 0 {
			return
		}
	}
}

func backfillAll(t *testing.T, b Backend) {
	t.Helper()
	for above := int64(0); ; {
		last, err := b.Search.NoteMissing(ctx, above)
		require.NoError(t, err)
		if last == 0 {
			return
		}
		require.Greater(t, last, above)
		above = last
	}
}

// searchAll returns the results of a query, read by small pages.
func searchAll(t *testing.T, b Backend, ctx context.Context, of search.Query, limit int) (found []string) { //nolint:revive // the test comes first
	t.Helper()
	s := search.NewService(b.Search, nil)
	for {
		page, next, err := s.Search(ctx, of, limit)
		require.NoError(t, err)
		for _, r := range page {
			found = append(found, fmt.Sprint(r.Thread, " ", r.Shown, " ", eventstore.Text(r.Content)))
		}
		if next == (search.Place{}) {
			return found
		}
		of.Before = next
	}
}

// A search by the index finds what a look at all texts finds, in the same order, whatever was written, copied, rolled back and deleted before, and however
// it is divided into pages; and with a filter what the filter selects of it.
func searchFindsTexts(t *testing.T, b Backend) {
	if err := b.Search.SetSearch(ctx, true); errors.Is(err, search.ErrEncrypted) {
		_, _, err := search.NewService(b.Search, search.ErrEncrypted).Search(ctx, search.Query{}, 10)
		require.ErrorIs(t, err, search.ErrEncrypted)
		insertThreads(t, b, newThread(1))
		write(t, b, func(tx run.Tx) error { return say(tx, threadID(1), runID(1), "secret words") })
		list, err := b.Search.ToIndex(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, list, "nothing of an encrypted database is indexed")
		terms, err := search.Parse("secr")
		require.NoError(t, err)
		require.Len(t, searchAll(t, b, ctx, search.Query{Terms: terms, Thread: threadID(1)}, 3), 1, "but one thread can be searched")
		return
	} else {
		require.NoError(t, err)
	}
	vocabulary := strings.Fields("cat cats catalog dog Zürich zurich 東京 京都へ行く x1 x2 été the the the and")
	var threads []id.Thread
	r := rand.New(rand.NewPCG(5, 3))
	for n := 1; n <= 60; n++ {
		switch k := r.IntN(10); {
		case k < 6 || len(threads) < 3:
			row := newThread(n)
			row.Metadata = raw(fmt.Sprintf(`{"owner":"u%d"}`, r.IntN(3)))
			texts := make([]string, 1+r.IntN(4))
			for i := range texts {
				words := make([]string, r.IntN(6))
				for j := range words {
					words[j] = vocabulary[r.IntN(len(vocabulary))]
				}
				texts[i] = fmt.Sprint(strings.Join(words, " "), " #", n, ".", i)
			}
			if n%7 == 0 { // saved while the index was off, or by an import
				require.NoError(t, b.Search.SetSearch(ctx, true))
			}
			write(t, b, func(tx run.Tx) error { return errors.Join(tx.InsertThread(row), say(tx, row.ID, runID(n), texts...)) })
			threads = append(threads, row.ID)
		case k == 6:
			from := threads[r.IntN(len(threads))]
			require.NoError(t, b.Threads.CopyThread(ctx, from, threadID(n), nil, func(tx thread.Tx, row *thread.Thread) error {
				row.ID = threadID(n)
				return tx.InsertThread(row)
			}))
			threads = append(threads, threadID(n))
		case k == 7:
			i := r.IntN(len(threads))
			write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threads[i]) })
			threads = slices.Delete(threads, i, i+1)
		case k == 8:
			i := threads[r.IntN(len(threads))]
			write(t, b, func(tx run.Tx) error { return tx.RollBackEvents(i, runID(n-1)) })
		default:
			indexAll(t, b)
		}
	}
	indexAll(t, b)
	backfillAll(t, b)
	indexAll(t, b)
	for _, query := range []string{"cat", "cat ", "cats the", "zurich", "東京", "京", "ete dog", "x", "x1 x2", "#", "1", "missing", "the", "the and cat"} {
		terms, err := search.Parse(query)
		if err != nil {
			continue
		}
		var want []string
		for _, th := range threads {
			want = append(want, searchAll(t, b, ctx, search.Query{Terms: terms, Thread: th}, 100)...)
		}
		got := searchAll(t, b, ctx, search.Query{Terms: terms, Newest: -1}, 1+r.IntN(5))
		require.Equal(t, got, searchAll(t, b, ctx, search.Query{Terms: terms, Newest: 1 + r.IntN(20)}, 1+r.IntN(5)), "%q", query)
		require.ElementsMatch(t, want, got, "%q", query)
		require.Equal(t, got, searchAll(t, b, ctx, search.Query{Terms: terms}, 100), "%q", query)
		narrow := in(t, access.Threads, `{"owner":"u1"}`)
		var mine []string
		for _, line := range got {
			row, err := b.Threads.Thread(ctx, id.Thread(line[:strings.IndexByte(line, ' ')]))
			require.NoError(t, err)
			if strings.Contains(string(row.Metadata), "u1") {
				mine = append(mine, line)
			}
		}
		require.Equal(t, mine, searchAll(t, b, narrow, search.Query{Terms: terms}, 2), "%q", query)
	}
	for _, th := range threads {
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(th) })
	}
	terms, err := search.Parse("the")
	require.NoError(t, err)
	require.Empty(t, searchAll(t, b, ctx, search.Query{Terms: terms}, 10))
	_, _, err = search.NewService(b.Search, nil).Search(ctx, search.Query{Terms: terms, Thread: threadID(999)}, 10)
	require.Error(t, err)
}

// Off empties the index and notes nothing more; on again, a backfill finds what was there.
func searchOff(t *testing.T, b Backend) {
	if errors.Is(b.Search.SetSearch(ctx, true), search.ErrEncrypted) {
		return // the other case has it
	}
	terms, err := search.Parse("needle")
	require.NoError(t, err)
	all := func() int { return len(searchAll(t, b, ctx, search.Query{Terms: terms, Newest: -1}, 10)) }
	insertThreads(t, b, newThread(1))
	write(t, b, func(tx run.Tx) error { return say(tx, threadID(1), runID(1), "needle 1", "needle 2") })
	require.Zero(t, all(), "not indexed yet")
	indexAll(t, b)
	require.Equal(t, 2, all())
	require.NoError(t, b.Search.SetSearch(ctx, false))
	require.Zero(t, all())
	write(t, b, func(tx run.Tx) error { return say(tx, threadID(1), runID(2), "needle 3") })
	list, err := b.Search.ToIndex(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, b.Search.SetSearch(ctx, true))
	backfillAll(t, b)
	indexAll(t, b)
	require.Equal(t, 3, all())
	backfillAll(t, b)
	list, err = b.Search.ToIndex(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, list, "all is indexed")
}
