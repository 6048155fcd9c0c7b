package checkpointer

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Page is consecutive records of a history. It holds their rows, which share most of their bytes, and composes each record when it is read. It is not
// safe for concurrent use.
type Page struct {
	// Bytes is the memory of the rows, and Largest about that of the largest record composed from them.
	Bytes, Largest int
	// More: there may be other records after these.
	More bool

	s     *Snapshots
	v     view
	rows  []*Tuple    // still to be composed
	ready []*Snapshot // of the first rows; composed together, because a graph was asked
}

// History returns records, newest first.
func (s *Snapshots) History(ctx context.Context, q List) ([]*Snapshot, error) {
	q.Bytes = 0
	p, err := s.Page(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]*Snapshot, 0, p.Len())
	for p.Len() > 0 {
		snap, err := p.Next(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, snap)
	}
	return out, nil
}

// Page is History for the first records whose rows fit into q.Bytes together, at least one.
func (s *Snapshots) Page(ctx context.Context, q List) (*Page, error) {
	tuples, err := s.rows.ListCheckpoints(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(tuples) == 0 && q.NS != nil && strings.Contains(*q.NS, ":") {
		ns := withoutTaskIDs(*q.NS)
		q.NS = &ns
		if tuples, err = s.rows.ListCheckpoints(ctx, q); err != nil {
			return nil, err
		}
	}
	p := &Page{s: s, v: view{failed: new(atomic.Int32)}, More: q.Limit > 0 && len(tuples) >= q.Limit}
	if n := len(tuples); n > 0 && tuples[n-1].Left {
		tuples, p.More = tuples[:n-1], true
	}
	var load Load
	for _, t := range tuples {
		load.Add(t)
		p.Largest = max(p.Largest, t.Size())
	}
	p.rows, p.Bytes = slices.Clone(tuples), load.Bytes
	return p, nil
}

// Len is the number of records that were not read; 0 for nil.
func (p *Page) Len() int {
	if p == nil {
		return 0
	}
	return len(p.rows)
}

// Keys returns those of the records that were not read.
func (p *Page) Keys() []Key {
	keys := make([]Key, len(p.rows))
	for i, t := range p.rows {
		keys[i] = t.Key
	}
	return keys
}

// Next composes the next record. The page must have one.
func (p *Page) Next(ctx context.Context) (*Snapshot, error) {
	if len(p.ready) == 0 {
		if err := p.compose(ctx); err != nil {
			return nil, err
		}
	}
	snap := p.ready[0]
	p.ready[0], p.ready = nil, p.ready[1:]
	p.rows[0], p.rows = nil, p.rows[1:]
	return snap, nil
}

const (
	// askedAtOnce is how many records are composed at once when graphs are asked about them, which takes milliseconds each.
	askedAtOnce = 4
	// askedBytes bounds their size.
	askedBytes = 4 << 20
)

// compose composes the next record, and those after it about which the graph can be asked at the same time.
func (p *Page) compose(ctx context.Context) error {
	n, size := 0, 0
	for _, t := range p.rows[:min(len(p.rows), askedAtOnce)] {
		need, err := p.s.needs(ctx, t, false)
		if err != nil {
			return err
		}
		if size += t.Size(); need == nothingAsked || n > 0 && size > askedBytes {
			break
		}
		n++
	}
	if n < 2 { // rows alone are composed faster than goroutines start
		snap, err := p.s.compose(ctx, p.rows[0], p.v)
		p.ready = []*Snapshot{snap}
		if err != nil {
			p.ready = nil
		}
		return err
	}
	ready := make([]*Snapshot, n)
	g, ctx := errgroup.WithContext(ctx)
	for i, t := range p.rows[:n] {
		g.Go(func() (err error) {
			ready[i], err = p.s.compose(ctx, t, p.v)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	p.ready = ready
	return nil
}
