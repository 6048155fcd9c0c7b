package audit

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"understudy/internal/loop"
)

const (
	// maxPending are the different entries of a second. Further refusals are counted in one entry.
	maxPending = 100
	// maxKept are refusals that are kept, so that a flood of them does not fill the disk.
	maxKept = 1_000_000
	// maxText is the length of each text of an entry, in bytes.
	maxText = 300

	flushEvery = time.Second
	trimEvery  = time.Hour
	trimStep   = 5_000 // entries of one transaction
	lastFlush  = 5 * time.Second
)

// Retention is how long entries are kept unless an operator says otherwise.
const Retention = 90 * 24 * time.Hour

// Options are those of a Log.
type Options struct {
	Store     Store
	Retention time.Duration // of entries
	Now       func() time.Time
	Log       *slog.Logger
	// Exists reports whether there is a resource ("thread", "assistant", "cron") with an ID, whomever it belongs to.
	Exists func(ctx context.Context, resource, id string) (bool, error)
}

// Log collects refusals and writes them while Run does. Create it with NewLog. Its methods are safe for concurrent use; those that add do
// nothing on a nil Log.
type Log struct {
	o     Options
	added chan struct{}

	mu      sync.Mutex
	pending map[Entry]*pending // by the entry without time and count
	order   []*pending
	more    *pending // refusals beyond maxPending; nil: none
}

type pending struct {
	Entry
	// hidden is what may be there, and was hidden from who asked: the entry counts only if it is. "" it counts.
	hidden, id string
}

// NewLog returns a Log.
func NewLog(o Options) *Log {
	return &Log{o: o, added: make(chan struct{}, 1), pending: map[Entry]*pending{}}
}

// Add adds a refusal. Event and what is known of the other fields are set; At and Count are those of now.
func (l *Log) Add(e Entry) { l.add(e, "", "") }

// AddHidden adds a refusal that looks to the client as if a resource did not exist, if it does exist.
func (l *Log) AddHidden(e Entry, resource, id string) { l.add(e, resource, id) }

func (l *Log) add(e Entry, hidden, id string) {
	if l == nil {
		return
	}
	for _, text := range []*string{&e.Identity, &e.Source, &e.Resource, &e.Outcome, &e.Detail} {
		*text = bounded(*text)
	}
	l.mu.Lock()
	have := l.pending[e]
	switch {
	case have != nil:
		have.Count++
	case len(l.order) < maxPending:
		p := &pending{Entry: e, hidden: hidden, id: strings.Clone(id)}
		p.At, p.Count = l.o.Now(), 1
		l.pending[e] = p
		l.order = append(l.order, p)
	case hidden != "": // it may not even exist
	case l.more != nil:
		l.more.Count++
	default:
		l.more = &pending{Entry: Entry{At: l.o.Now(), Event: e.Event, Outcome: e.Outcome, Detail: "further refusals, from any source", Count: 1}}
	}
	l.mu.Unlock()
	loop.Poke(l.added)
}

// bounded returns a copy of a text of a client that is fit for the list.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "?")
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.Clone(s))
}

// Run writes what is added, and deletes what is old, until the context ends. What was added by then is written.
func (l *Log) Run(ctx context.Context) error {
	trimmed := make(chan struct{})
	go func() {
		defer close(trimmed)
		if err := l.trim(ctx); err != nil && ctx.Err() == nil {
			l.o.Log.WarnContext(ctx, "old entries of the audit log not deleted; trying again in an hour", "error", err)
		}
		_ = loop.Loop{Name: "audit retention", Log: l.o.Log, Now: l.o.Now}.Every(ctx, trimEvery, l.trim)
	}()
	err := loop.Loop{Name: "audit", Log: l.o.Log, Now: l.o.Now}.Run(ctx, l.added, func(ctx context.Context) (time.Time, error) {
		err := l.flush(ctx)
		select { // what is added next waits, so that there is a write in a second, also while writes fail
		case <-ctx.Done():
		case <-time.After(flushEvery):
		}
		return time.Time{}, err
	})
	<-trimmed
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	if err := l.flush(last); err != nil {
		l.o.Log.ErrorContext(ctx, "refusals of the last second are not in the audit log", "error", err)
	}
	return err
}

// flush writes what was added. After an error it is still there.
func (l *Log) flush(ctx context.Context) error {
	l.mu.Lock()
	batch := l.order
	if l.more != nil {
		batch = append(batch, l.more)
	}
	l.pending, l.order, l.more = map[Entry]*pending{}, nil, nil
	l.mu.Unlock()
	entries, err := l.counted(ctx, batch)
	if err == nil && len(entries) > 0 {
		err = l.o.Store.AppendAudit(ctx, entries)
	}
	if err != nil {
		l.restore(batch)
	}
	return err
}

// counted returns the entries of a batch that count.
func (l *Log) counted(ctx context.Context, batch []*pending) ([]Entry, error) {
	entries := make([]Entry, 0, len(batch))
	for _, p := range batch {
		if p.hidden != "" {
			there, err := l.o.Exists(ctx, p.hidden, p.id)
			if err != nil {
				return nil, err
			}
			if !there {
				continue
			}
		}
		entries = append(entries, p.Entry)
	}
	return entries, nil
}

// restore puts back what was not written, before what was added meanwhile.
func (l *Log) restore(batch []*pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	later, more := l.order, l.more
	l.pending, l.order, l.more = map[Entry]*pending{}, nil, nil
	for _, p := range append(batch, later...) {
		key := p.Entry
		key.At, key.Count = time.Time{}, 0
		switch have := l.pending[key]; {
		case have != nil:
			have.Count += p.Count
		case len(l.order) < maxPending:
			l.pending[key] = p
			l.order = append(l.order, p)
		case more != nil:
			more.Count += p.Count
		default:
			more = p
		}
	}
	l.more = more
}

// trim deletes what is too old or too much.
func (l *Log) trim(ctx context.Context) error {
	now := l.o.Now()
	for {
		n, err := l.o.Store.TrimAudit(ctx, now.Add(-l.o.Retention), maxKept, trimStep)
		if err != nil || n < trimStep {
			return err
		}
	}
}
