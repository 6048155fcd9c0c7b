package rows

import (
	"understudy/store"
	"understudy/thread"
)

// The answer to searches that took too long.
const (
	NarrowItems   = "give a longer namespace_prefix, or a filter that more items match"
	NarrowThreads = "search by one scalar of metadata, by status, or by ids, in order of updated_at, which indexes answer, or by what more threads match"
	NarrowCrons   = "give an assistant_id or a thread_id"
)

// manySkipped is an offset from which passing over rows takes its time.
const manySkipped = 10_000

// ScansThreads reports whether a search may read any number of threads to find a page: no index
// has exactly what it asks for. terms is the number of terms that the index of metadata is asked
// for; all says that nothing else is asked of metadata.
func ScansThreads(q thread.Query, terms int, all bool) bool {
	switch {
	case len(q.IDs) > 0:
		return false
	case q.Offset > manySkipped || q.Limit <= 0:
		return true
	case terms == 0 && all:
		return q.Status != "" && q.SortBy != "" && q.SortBy != "updated_at" && q.SortBy != "status"
	}
	return !all || terms > 1 || q.Status != "" || q.SortBy != "" && q.SortBy != "updated_at"
}

// ScansItems reports whether a search may read any number of items to find a page. nested says
// that there are namespaces below the prefix.
func ScansItems(q store.Search, filtered, nested bool) bool {
	return filtered || nested || q.Offset > manySkipped || q.Limit <= 0
}
