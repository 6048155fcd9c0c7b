// Package search finds messages by their words.
//
// Storage notes each message that is saved as one to index. An Indexer reads those later, in batches, and writes their words into the index of the
// database, at most one twentieth of the time: so runs never wait for it, and under load it falls behind rather than slowing them down. A search finds
// candidates in the index and decides by the text of the message itself, so that all databases return the same.
package search

import (
	"context"
	"time"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
)

// Store is the part of the storage that searches use.
type Store interface {
	// SetSearch turns the index on, or off and empties it. On an encrypted database it stays off: ErrEncrypted.
	SetSearch(ctx context.Context, on bool) error
	// NoteMissing looks at some messages above a body, in order, and notes those that are not in the index as ones to index: they were saved while it was
	// off, or imported. It returns the last body that it looked at; 0: there are no more.
	NoteMissing(ctx context.Context, above int64) (last int64, err error)
	// ToIndex returns messages to index, at most limit, those that were saved last: they are the ones that are looked for.
	ToIndex(ctx context.Context, limit int) ([]Document, error)
	// PutWords indexes messages. Those that are gone, or indexed already, are left out.
	PutWords(ctx context.Context, list []Document) error
	// Matching calls fn with the messages whose words are in the index, or with q.Thread with all messages of that thread, newest first, until it returns
	// false. Only threads in reach of ctx exist. It looks at a bounded number of messages: end is the place up to which it has looked, the zero Place when it
	// has seen all or fn has stopped it.
	Matching(ctx context.Context, q Query, fn func(Row) bool) (end Place, err error)
}

// Document is a message of the index.
type Document struct {
	Body    int64    // what the messages of forks have in common
	Content []byte   // JSON, from ToIndex
	Size    int      // of Content, for PutWords
	Words   []string // for PutWords
}

// Query is a search in storage.
type Query struct {
	Terms  Terms
	Thread id.Thread // "": all
	Before Place     // only what is behind it; zero: from the newest on
	// Newest is how many messages Matching returns first, whatever their words are: so common words are found without reading all of their places in the
	// index, and new messages before they are indexed. 0: 400, negative: none.
	Newest int
}

// Place is the position of a message in the order of results.
type Place struct {
	Body   int64     // of results of all threads
	Thread id.Thread // those of the same body are in order of their threads
	Seq    eventstore.Seq
}

// Row is a candidate.
type Row struct {
	Place
	Run       id.Run
	Type      string
	MessageID string
	CreatedAt time.Time
	Content   []byte
	Shown     eventstore.Seq // the seq of the message in the transcript
	Hidden    bool           // nothing shows it any more: its run was rolled back
}

// Result is a message that has the terms.
type Result struct {
	Row
	Snippet []Part
}

var (
	// ErrEncrypted: words in an index would not be encrypted.
	ErrEncrypted = fault.New(fault.Unprocessable, "Search is off: the database is encrypted, and words in an index would not be. Search inside of one thread works (thread_id).")
	// ErrOff: history.search is off.
	ErrOff = fault.New(fault.Unprocessable, "Search is off: history.search is false. Search inside of one thread works (thread_id).")
)

// Service searches. Its methods are safe for concurrent use.
type Service struct {
	store Store
	off   error // why; nil: it is on
}

// NewService makes a Service. off is why there is no index; nil: there is one.
func NewService(store Store, off error) *Service { return &Service{store, off} }

// maxRows and maxBytes bound the candidates that one call looks at.
const maxRows, maxBytes = 2_000, 32 << 20

// Search returns results, newest first, and the place behind which the next page begins; the zero Place: there is none. A page may be short, or empty.
func (s *Service) Search(ctx context.Context, q Query, limit int) (page []Result, next Place, err error) {
	if q.Thread == "" && s.off != nil {
		return nil, Place{}, s.off
	}
	rows, bytes := 0, 0
	if q.Newest == 0 {
		q.Newest = 400
	}
	end, err := s.store.Matching(ctx, q, func(r Row) bool {
		rows++
		bytes += len(r.Content)
		if !r.Hidden {
			if snippet := q.Terms.Snippet(eventstore.Text(r.Content)); snippet != nil {
				page = append(page, Result{r, snippet})
			}
		}
		if len(page) == limit || rows == maxRows || bytes > maxBytes {
			next = r.Place
			return false
		}
		return true
	})
	if next == (Place{}) {
		next = end
	}
	return page, next, err
}
