package thread

import (
	"context"
	"errors"
	"fmt"
	"io"

	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/limits"
)

// History returns a history, newest first. It is held in memory; use ReadHistory for histories that may be long.
func (s *Service) History(ctx context.Context, q HistoryQuery) (list []*checkpointer.Snapshot, err error) {
	h, err := s.ReadHistory(ctx, q)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	for {
		snap, err := h.Next(ctx)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, snap)
	}
}

// Entries iterates over a history. The caller closes it.
type Entries interface {
	// Next returns the next entry; io.EOF after the last.
	Next(ctx context.Context) (*checkpointer.Snapshot, error)
	// Partial reports whether the size limit of the answer omits transcripts. Then the first entries are shown as without the limit, and later
	// entries with condensed messages show the graph's messages. known is false while this depends on entries that were not read.
	Partial(ctx context.Context) (entries int, partial, known bool, err error)
	// Loaded is how many entries Next returns without loading others.
	Loaded() int
	Close()
}

// HistoryReader reads the entries of a history, newest first. It loads checkpoints by pages and holds no database resources between them:
// however slowly its entries are consumed, no other read waits for it. It is not safe for concurrent use.
type HistoryReader struct {
	s       *Service
	row     *Thread
	list    checkpointer.List // of the next page
	left    int               // entries still to return; < 0: all
	page    *checkpointer.Page
	last    bool // there is no further page
	memory  Memory
	taken   int64            // of memory, for the page
	spare   int64            // of memory, to compare an entry with the one before
	reading *overlay.Reading // nil: entries show the graph's messages
	looked  bool             // unread entries were checked for condensed messages
	more    bool             // some were condensed
}

const (
	// firstPage is how many checkpoints are loaded first, if they are small: the limit of most clients.
	firstPage = 10
	// pageBytes is how many bytes the checkpoints of a page after the first may add, and maxPage the maximum number of checkpoints. A reader
	// holds their rows as long as its client takes to receive them.
	pageBytes, maxPage = 4 << 20, 64
)

// ReadHistory begins to read a history; fault.NotFound when the thread does not exist. The caller closes the reader.
func (s *Service) ReadHistory(ctx context.Context, q HistoryQuery) (Entries, error) {
	row, err := s.row(ctx, q.Thread)
	if err != nil {
		return nil, err
	}
	if q.Memory == nil {
		q.Memory = unbounded{}
	}
	h := &HistoryReader{s: s, row: row, left: q.Limit, memory: q.Memory, list: checkpointer.List{
		Thread: q.Thread, NS: &q.NS, Before: q.Before, ID: q.ID, Metadata: q.Metadata, Limit: firstPage, Bytes: pageBytes,
	}}
	if q.Limit <= 0 {
		h.left = -1
	}
	if look := s.Overlay.Look(ctx, jsonobj.Of(row.Metadata).Text("graph_id"), overlay.History); look.On {
		h.reading = s.Overlay.Read(row.ID, look)
	}
	if err := h.load(ctx, true); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// unbounded is Memory without a bound.
type unbounded struct{}

func (unbounded) Take(int64) bool                   { return true }
func (unbounded) Wait(context.Context, int64) error { return nil }
func (unbounded) Hold(int64)                        {}
func (unbounded) Give(int64)                        {}

// Close ends the reading.
func (h *HistoryReader) Close() {
	h.release()
	if h.reading != nil {
		h.reading.Done()
		h.reading = nil
	}
}

// release gives up the page.
func (h *HistoryReader) release() {
	h.page = nil
	h.reserve(0)
	if h.spare > 0 {
		h.memory.Give(h.spare)
		h.reading.Remember(0)
		h.spare = 0
	}
}

// reserve makes the reserved memory so many bytes. It has at least as many, or is no bound.
func (h *HistoryReader) reserve(n int64) {
	if n > h.taken {
		h.memory.Hold(n - h.taken)
	} else if n < h.taken {
		h.memory.Give(h.taken - n)
	}
	h.taken = n
}

// smallPage is the size of pages that are loaded even if the memory is used up: those of short answers.
const smallPage = 1 << 20

// load loads the next page, and reserves the memory that its rows and one record composed from them take. The first page must fit at once. Later ones
// wait, and hold nothing meanwhile.
func (h *HistoryReader) load(ctx context.Context, first bool) (err error) {
	if h.left == 0 {
		h.last = true
	}
	if h.last {
		return nil
	}
	if h.left > 0 {
		h.list.Limit = min(h.list.Limit, h.left)
	}
	if err := h.loadPage(ctx, first); err != nil {
		return err
	}
	h.last = !h.page.More
	keys := h.page.Keys()
	if len(keys) == 0 {
		return nil
	}
	if h.left > 0 {
		h.left -= len(keys)
	}
	if h.reading != nil {
		if err := h.reading.ReadAhead(ctx, rootsOf(keys)); err != nil {
			return err
		}
	}
	end := keys[len(keys)-1]
	h.list.Before, h.list.NS, h.list.Limit = end.ID, &end.NS, maxPage
	return nil
}

// loadPage loads the next page with its memory.
func (h *HistoryReader) loadPage(ctx context.Context, first bool) error {
	if !first {
		// The next page is like the last one, mostly.
		n := h.taken
		h.release()
		if err := h.memory.Wait(ctx, n); err != nil {
			return err
		}
		h.taken = n
	}
	for {
		page, err := h.s.Snapshots.Page(ctx, h.list)
		if err != nil {
			return err
		}
		n := int64(page.Bytes + page.Largest + page.Largest/4)
		switch {
		case n <= h.taken || first && n <= smallPage:
			h.reserve(n)
		case h.memory.Take(n - h.taken):
			h.taken = n
		case first:
			return limits.ErrReads
		default:
			h.reserve(0)
			if err := h.memory.Wait(ctx, n); err != nil {
				return err
			}
			h.taken = n
			continue // it was not kept meanwhile
		}
		// Only where there is plenty: it saves time, but may keep other readers out.
		if n := int64(page.Largest + page.Largest/4); h.reading != nil && n > smallPage && h.memory.Take(4*n) {
			h.memory.Give(3 * n)
			h.spare = n
			h.reading.Remember(int(n))
		}
		h.page = page
		return nil
	}
}

// rootsOf returns the checkpoints that have a transcript.
func rootsOf(keys []checkpointer.Key) []id.Checkpoint {
	ids := make([]id.Checkpoint, 0, len(keys))
	for _, k := range keys {
		if k.NS == "" {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// Next returns the next entry; io.EOF after the last. fault.NotFound: the thread was deleted meanwhile.
func (h *HistoryReader) Next(ctx context.Context) (*checkpointer.Snapshot, error) {
	if h.page.Len() == 0 && !h.last {
		row, err := h.s.row(ctx, h.row.ID)
		if err == nil && !row.CreatedAt.Equal(h.row.CreatedAt) {
			err = notFound(h.row.ID) // another thread with the same id
		}
		if err == nil {
			err = h.load(ctx, false)
		}
		if err != nil {
			return nil, err
		}
	}
	if h.page.Len() == 0 {
		return nil, io.EOF
	}
	snap, err := h.page.Next(ctx)
	if err != nil {
		return nil, err
	}
	if h.reading != nil {
		if err := h.reading.Snapshot(ctx, snap, false); err != nil {
			return nil, fmt.Errorf("checkpoint %s of thread %s: %w", snap.ID, h.row.ID, err)
		}
		h.reading.Count(snap.Values)
	}
	return snap, nil
}

// Loaded is Entries.Loaded.
func (h *HistoryReader) Loaded() int { return h.page.Len() }

// Partial is Entries.Partial.
func (h *HistoryReader) Partial(ctx context.Context) (entries int, partial, known bool, err error) {
	if h.reading == nil {
		return 0, false, true, nil
	}
	if entries, partial = h.reading.Spent(); partial || h.page.Len() == 0 && h.last {
		return entries, partial, true, nil
	}
	if !h.reading.Bounded() {
		return 0, false, true, nil
	}
	exhausted := h.reading.Exhausted()
	if !h.looked || exhausted {
		if h.more, err = h.condensed(ctx); err != nil {
			return 0, false, false, err
		}
		h.looked = true
	}
	return entries, h.more && exhausted, !h.more || exhausted, nil
}

// manyKeys is how many checkpoints are looked up at once without their values.
const manyKeys = 256

// condensed reports whether an entry that was not read has condensed messages.
func (h *HistoryReader) condensed(ctx context.Context) (bool, error) {
	if is, err := h.reading.Condensed(ctx, rootsOf(h.page.Keys())); is || err != nil {
		return is, err
	}
	rest := h.list
	rest.Bytes, rest.Keys, rest.Limit = 0, true, manyKeys
	for left := h.left; !h.last && left != 0; {
		tuples, err := h.s.Store.ListCheckpoints(ctx, rest)
		if err != nil {
			return false, err
		}
		var keys []checkpointer.Key
		for _, t := range tuples {
			keys = append(keys, t.Key)
			if left--; left == 0 {
				break
			}
		}
		if is, err := h.reading.Condensed(ctx, rootsOf(keys)); is || err != nil {
			return is, err
		}
		if len(tuples) < rest.Limit {
			break
		}
		rest.Before = tuples[len(tuples)-1].ID
	}
	return false, nil
}
