package sqlite

import (
	"context"
	"sync"

	"understudy/access"
	"understudy/assistant"
	"understudy/id"
	"understudy/storage/internal/relational"
)

// Assistant implements assistant.Store and run.Store. Each run reads its assistant, so rows are
// cached.
func (s *Store) Assistant(ctx context.Context, a id.Assistant) (*assistant.Assistant, error) {
	in := relational.AssistantIn(access.Reach(ctx, access.Assistants))
	known, since := s.writer.assistants.get(a)
	if known != nil {
		if row, err := in(known, nil); err == nil {
			return row, nil
		} // one that is hidden takes the time of one that does not exist
	}
	out, err := s.Store.Assistant(access.Everything(ctx), a)
	if err == nil {
		s.writer.assistants.put(out, since)
	}
	return in(out, err)
}

// knownAssistants caches rows of assistants. It needs no expiry: only the writer of this process
// changes them.
type knownAssistants struct {
	mu      sync.Mutex
	rows    map[id.Assistant]assistant.Assistant
	changes int // commits that changed assistants
}

// mostKnown bounds the cache. A full cache is emptied, which is simpler than evicting and costs at
// most 256 reads.
const mostKnown = 256

// get returns a copy of a cached row, or nil. since is the state of the cache that put compares
// with.
func (k *knownAssistants) get(a id.Assistant) (row *assistant.Assistant, since int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.rows[a]; ok {
		return &known, k.changes
	}
	return nil, k.changes
}

// put caches a row that was read after get returned since. A commit in between may have changed
// the row, so it is not cached then.
func (k *knownAssistants) put(row *assistant.Assistant, since int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if since != k.changes {
		return
	}
	if k.rows == nil || len(k.rows) >= mostKnown {
		k.rows = map[id.Assistant]assistant.Assistant{}
	}
	k.rows[row.ID] = *row
}

// forget empties the cache. The writer calls it after a commit that changed assistants and before
// the caller of that write continues, so that every caller reads its own writes.
func (k *knownAssistants) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows, k.changes = nil, k.changes+1
}
