package sqlite

import (
	"context"
	"sync"

	"understudy/assistant"
	"understudy/id"
)

// Assistant is assistant.Store.Assistant and run.Store.Assistant.
func (s *Store) Assistant(ctx context.Context, a id.Assistant) (*assistant.Assistant, error) {
	known, since := s.writer.assistants.get(a)
	if known != nil {
		return known, nil
	}
	out, err := s.Store.Assistant(ctx, a)
	if err == nil {
		s.writer.assistants.put(out, since)
	}
	return out, err
}

// knownAssistants are rows as they were read last: each run asks for one. Only the writer changes them, and no other process may.
type knownAssistants struct {
	mu      sync.Mutex
	rows    map[id.Assistant]assistant.Assistant
	changes int // commits that changed assistants
}

// mostKnown bounds them; beyond it others take their places.
const mostKnown = 256

// get gives a copy of a row, nil when it is not known, and since when what is read is not older than it may be.
func (k *knownAssistants) get(a id.Assistant) (row *assistant.Assistant, since int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.rows[a]; ok {
		return &known, k.changes
	}
	return nil, k.changes
}

// put notes a row that was read after since, unless assistants have changed meanwhile.
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

// forget drops all. It is called after a commit that changed assistants, before the one who asked for it is told.
func (k *knownAssistants) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows, k.changes = nil, k.changes+1
}
