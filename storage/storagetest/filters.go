package storagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/id"
	"understudy/thread"
)

// FilteredSearch is a filter of access control, and a search of someone whom it holds.
type FilteredSearch struct {
	Name   string
	Filter *access.Filter
	Text   json.RawMessage // of the filter
	Query  thread.Query
	// Rare says that an index finds the few threads that the filter selects.
	Rare bool
}

// FilteredSearches are searches of FilteredThread.
func FilteredSearches(t testing.TB) (out []FilteredSearch) {
	t.Helper()
	for _, c := range filteredSearches {
		filter, err := access.ParseFilter([]byte(c.filter))
		require.NoError(t, err)
		out = append(out, FilteredSearch{c.name, filter, json.RawMessage(c.filter), c.of, strings.Contains(c.filter, "u7")})
	}
	return out
}

// FilteredThread is one of many threads: each owner has ten, each is shared with one other owner, and a team has half of them.
func FilteredThread(n int) *thread.Thread {
	at := time.UnixMicro(1_700_000_000_000_000 + int64(n)).UTC()
	return &thread.Thread{
		ID: id.Thread(fmt.Sprintf("%08x-0000-7000-8000-%012d", uint32(n)*2654435761, n)), CreatedAt: at, UpdatedAt: at, StateUpdatedAt: at,
		Metadata: json.RawMessage(fmt.Sprintf(`{"graph_id":"agent","owner":"u%d","shared_with":"u%d","team":%d,"members":["u%d","u%d"]}`, n%filteredOwners, (n+7)%filteredOwners, n%2, n%filteredOwners, (n+7)%filteredOwners)),
		Config:   json.RawMessage(`{}`), Status: thread.Idle,
	}
}

// filteredOwners is how many owners FilteredSearches has, so that each has ten threads of 100,000.
const filteredOwners = 10_000

// filteredSearches are filters of access control, as native policies and handlers in Python return them, and searches of those whom they hold.
var filteredSearches = []struct {
	name, filter string
	of           thread.Query
}{
	{"unfiltered", `{}`, thread.Query{}},
	{"owner", `{"owner":"u7"}`, thread.Query{}},
	{"eq", `{"owner":{"$eq":"u7"}}`, thread.Query{}},
	{"team", `{"team":1}`, thread.Query{}},
	{"nobody", `{"owner":"nobody"}`, thread.Query{}},
	{"or", `{"$or":[{"owner":"u7"},{"shared_with":"u7"}]}`, thread.Query{}},
	{"and", `{"$and":[{"owner":"u7"},{"team":1}]}`, thread.Query{}},
	{"or of and", `{"$or":[{"$and":[{"owner":"u7"},{"team":1}]},{"shared_with":"u7"}]}`, thread.Query{}},
	{"contains", `{"members":{"$contains":"u7"}}`, thread.Query{}},
	{"contains two", `{"members":{"$contains":["u7","u14"]}}`, thread.Query{}},
	{"or contains", `{"$or":[{"owner":"u7"},{"members":{"$contains":"u7"}}]}`, thread.Query{}},
	{"owner contains", `{"owner":"u7","members":{"$contains":"u14"}}`, thread.Query{}},
	{"contains, created", `{"members":{"$contains":"u7"}}`, thread.Query{SortBy: "created_at"}},
	{"contains, metadata", `{"members":{"$contains":"u7"}}`, thread.Query{Metadata: json.RawMessage(`{"graph_id":"agent"}`)}},
	{"unfiltered, metadata", `{}`, thread.Query{Metadata: json.RawMessage(`{"graph_id":"agent"}`)}},
	{"owner, metadata", `{"owner":"u7"}`, thread.Query{Metadata: json.RawMessage(`{"graph_id":"agent"}`)}},
	{"or, metadata", `{"$or":[{"owner":"u7"},{"shared_with":"u7"}]}`, thread.Query{Metadata: json.RawMessage(`{"graph_id":"agent"}`)}},
	{"unfiltered, status", `{}`, thread.Query{Status: thread.Idle}},
	{"owner, status", `{"owner":"u7"}`, thread.Query{Status: thread.Idle}},
	{"or, status", `{"$or":[{"owner":"u7"},{"shared_with":"u7"}]}`, thread.Query{Status: thread.Idle}},
	{"unfiltered, created", `{}`, thread.Query{SortBy: "created_at"}},
	{"owner, created", `{"owner":"u7"}`, thread.Query{SortBy: "created_at"}},
	{"team, created", `{"team":1}`, thread.Query{SortBy: "created_at"}},
	{"or, created", `{"$or":[{"owner":"u7"},{"shared_with":"u7"}]}`, thread.Query{SortBy: "created_at"}},
}

// BenchmarkFilteredSearches searches THREADS (10,000) threads with the filters of access control, the first page and the number of all. insert writes some threads
// in one transaction.
func BenchmarkFilteredSearches(b *testing.B, s interface {
	SearchThreads(ctx context.Context, of thread.Query) ([]*thread.Thread, error)
	CountThreads(ctx context.Context, of thread.Query) (int, error)
}, insert func(threads []*thread.Thread), settle func(),
) {
	b.Helper()
	total := 10_000
	if text := os.Getenv("THREADS"); text != "" {
		var err error
		total, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for n := 0; n < total; {
		var batch []*thread.Thread
		for range min(1000, total-n) {
			batch = append(batch, FilteredThread(n))
			n++
		}
		insert(batch)
	}
	settle()
	for _, c := range FilteredSearches(b) {
		ctx := access.Narrow(b.Context(), access.Threads, c.Filter)
		c.Query.Limit = 10
		b.Run(c.Name, func(b *testing.B) {
			found := 0
			for b.Loop() {
				got, err := s.SearchThreads(ctx, c.Query)
				require.NoError(b, err)
				found = len(got)
			}
			b.ReportMetric(float64(found), "threads")
		})
		b.Run(c.Name+"/count", func(b *testing.B) {
			for b.Loop() {
				_, err := s.CountThreads(ctx, c.Query)
				require.NoError(b, err)
			}
		})
	}
}
