package record

import (
	"fmt"
	"slices"
	"sync"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// stepsBytes bounds what is kept of the stream of a run.
const stepsBytes = 4 << 20

type exitKey struct {
	thread id.Thread
	run    id.Run
}

// steps are the messages that a run streamed, one list after the other. A run with durability "exit" saves only the last: what it said and
// condensed in between is in its stream alone.
type steps struct {
	mu    sync.Mutex
	pool  *pool
	lists []list
}

type list struct {
	version  string
	items    [][]byte
	channels []eventstore.TextChannel
}

// add notes the messages of values. When they become too many the rest is not kept: the run is then recorded as it was saved.
func (s *steps) add(values []byte, channel string) {
	value := jsonscan.Raw(values, channel)
	items, ok := jsonscan.Elements(value)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := list{version: versionOf(value), channels: textsOf(values)}
	if n := len(s.lists); s.pool.size > stepsBytes || n > 0 && s.lists[n-1].version == l.version && slices.Equal(s.lists[n-1].channels, l.channels) {
		return
	}
	l.items = s.pool.keep(items)
	s.lists = append(s.lists, l)
}

// between records what a run streamed before it saved its only checkpoint, whose facts these are, as if it had been saved: above is the
// parent of the checkpoint. It returns what takes the parent's place.
func (r *Recorder) between(tx recording, f eventstore.Facts, above *Link) (id.Checkpoint, error) {
	if f.Run == "" || above != nil && above.Run == f.Run {
		return f.Parent, nil
	}
	s, ok := r.exits.get(exitKey{f.Thread, f.Run})
	if !ok {
		return f.Parent, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := f
	at.Deleted, at.Source = nil, "loop"
	base := f.Parent
	for i, l := range s.lists {
		if l.version == f.Version && i == len(s.lists)-1 && slices.Equal(l.channels, f.Channels) {
			break
		}
		at.Checkpoint = id.Checkpoint(fmt.Sprintf("%s+%04d", base, i+1)) // sorts between parent and child, and is no checkpoint's
		at.Channels = l.channels
		at.Version, at.Messages = l.version, &eventstore.Value{Type: "bytes", Items: l.items}
		if err := eventstore.Record(tx, at); err != nil {
			return "", err
		}
		at.Parent = at.Checkpoint
	}
	return at.Parent, nil
}
