package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"
	"time"

	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/store"
)

// Documents keep the memories, a text for each Subject.
type Documents interface {
	// Load returns the document of a subject; nil: there is none.
	Load(ctx context.Context, subject string) (*Document, error)
	// Save writes a document if the one of the subject is still was (nil: there is none). done is false if it is not: then nothing is written.
	Save(ctx context.Context, subject string, was *Document, text []byte) (done bool, err error)
}

// Document is a document as it was read.
type Document struct {
	Text []byte
	item *store.Item // of those that are in the store
}

// Book is the memories of all users. It is safe for concurrent use, also by several servers: of changes at the same time none is lost.
type Book struct {
	// In returns where the memory of a subject is.
	In  func(subject string) Documents
	Now func() time.Time

	turns [64]chan struct{} // of changes here, by subject: one at a time, so that they do not try again because of each other
	once  sync.Once         // makes turns
}

// Read returns the memory of a user.
func (b *Book) Read(ctx context.Context, user string) (*Memory, error) {
	_, m, err := read(ctx, b.In(user), user)
	return m, err
}

// read returns a memory, and its document; nil: there is none.
func read(ctx context.Context, in Documents, user string) (*Document, *Memory, error) {
	d, err := in.Load(ctx, user)
	if err != nil {
		return nil, nil, fmt.Errorf("read a memory: %w", err)
	}
	if d == nil {
		return nil, empty(), nil
	}
	m, err := parse(d.Text)
	return d, m, err
}

// Change applies a change to the memory of a user and returns the new one. An error from change leaves it as it was. change is called again when another server has
// changed the memory meanwhile.
func (b *Book) Change(ctx context.Context, user string, change func(*Memory) error) (*Memory, error) {
	return b.change(ctx, user, false, change)
}

// Of changes that others are quicker than: tries, and the waits between them.
const (
	maxChanges          = 100
	firstWait, lastWait = 2 * time.Millisecond, 200 * time.Millisecond
)

// change is Change. anew: what cannot be read may be replaced.
func (b *Book) change(ctx context.Context, user string, anew bool, change func(*Memory) error) (*Memory, error) {
	turn := b.turn(user)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	in, wait := b.In(user), loop.NewBackoff(firstWait, lastWait)
	for range maxChanges {
		was, m, err := read(ctx, in, user)
		if anew && errors.Is(err, errUnreadable) {
			m, err = empty(), nil
		}
		if err == nil {
			err = change(m)
		}
		if err != nil {
			return nil, err
		}
		m.complete()
		m.Version = version // 2.0 has no facts
		m.Revision++
		m.LastUpdated = Stamp(b.Now())
		text, err := m.document()
		if err != nil {
			return nil, fmt.Errorf("encode a memory: %w", err)
		}
		if len(text) > maxText {
			return nil, fault.Newf(fault.Unprocessable, "The memory has more than %d MiB", maxText>>20)
		}
		done, err := in.Save(ctx, user, was, text)
		if err != nil {
			return nil, fmt.Errorf("write a memory: %w", err)
		}
		if done {
			return m, nil
		}
		if !wait.Sleep(ctx) {
			return nil, context.Cause(ctx)
		}
	}
	return nil, fault.New(fault.Unavailable, "The memory is being changed by others all the time; try again")
}

func (b *Book) turn(user string) chan struct{} {
	b.once.Do(func() {
		for i := range b.turns {
			b.turns[i] = make(chan struct{}, 1)
		}
	})
	h := fnv.New32a()
	_, _ = io.WriteString(h, user)
	return b.turns[h.Sum32()%uint32(len(b.turns))]
}
