package record

import (
	"fmt"
	"slices"
	"sync"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// stepsBytes limits the stored stream of a run.
const stepsBytes = 4 << 20

type exitKey struct {
	thread id.Thread
	run    id.Run
}

// steps are the message lists that a run streamed. A run with durability "exit" saves only the last one: earlier messages and condensing
// are only in its stream.
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

// add appends the messages of values. Beyond the limit the rest is dropped: the run is then recorded as it was saved.
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

// between records what a run streamed before it saved its only checkpoint, as if it had been saved. f are the facts of that checkpoint,
// and above is its parent. It returns the new parent.
func (r *Recorder) between(tx recording, f eventstore.Facts, above *Link) (id.Checkpoint, error) {
	if f.Run == "" || above != nil && above.Run == f.Run {
		return f.Parent, nil
	}
	s, ok := r.exits.Get(exitKey{f.Thread, f.Run})
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
		at.Checkpoint = id.Checkpoint(fmt.Sprintf("%s+%04d", base, i+1)) // sorts between parent and child, and is not a real id
		at.Channels = l.channels
		at.Version, at.Messages = l.version, &eventstore.Value{Type: "bytes", Items: l.items}
		if err := eventstore.Record(tx, at); err != nil {
			return "", err
		}
		at.Parent = at.Checkpoint
	}
	return at.Parent, nil
}
