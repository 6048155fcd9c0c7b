package vectors

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"understudy/storage/internal/rows"
)

// Set holds the vectors of a store's items. It is safe for concurrent use. Searches hold its lock only while they note where the vectors
// are: what they read is not changed afterwards, and each item knows the revisions in which it was there.
type Set struct {
	model string
	dims  int

	mu       sync.RWMutex
	revision int64
	spaces   map[string]*space // by namespace
	rows     int               // with those of replaced items
}

// space is a namespace.
type space struct {
	items  map[string]*entry
	chunks []*chunk
}

// chunk holds vectors of items of one namespace. Rows are appended and never changed. All rows of an item are in one chunk, next to each
// other.
type chunk struct {
	flat   []float32
	owners []*entry // of each row
	dead   int      // rows of replaced items
}

// entry is an item as of one write.
type entry struct {
	key     string
	updated int64
	born    int64
	died    atomic.Int64 // 0: it is current
	chunk   *chunk       // nil: it has no vectors
	rows    int
}

// chunkRows is the number of rows of a full chunk.
const chunkRows = 1024

// NewSet returns an empty set for vectors of a model.
func NewSet(model string, dims int) *Set {
	return &Set{model: model, dims: dims, spaces: map[string]*space{}}
}

// Change is a written item. Without vectors of the model of the set it is not found any more.
type Change struct {
	Namespace, Key string
	Updated        int64 // in microseconds
	Model          string
	Vectors        [][]float32
}

// Apply makes the changes of a transaction visible, all at once.
func (s *Set) Apply(changes []Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	for i := range changes {
		s.apply(&changes[i])
	}
}

func (s *Set) apply(c *Change) {
	sp := s.spaces[c.Namespace]
	if sp != nil {
		if old := sp.items[c.Key]; old != nil {
			old.died.Store(s.revision)
			delete(sp.items, c.Key)
			s.compact(sp, old)
		}
	}
	if len(c.Vectors) > 0 && c.Model == s.model {
		if sp == nil {
			sp = &space{items: map[string]*entry{}}
			s.spaces[c.Namespace] = sp
		}
		s.add(sp, c)
	}
	if sp != nil && len(sp.items) == 0 {
		for _, ch := range sp.chunks {
			s.rows -= len(ch.owners)
		}
		delete(s.spaces, c.Namespace)
	}
}

// add appends an item to the last chunk with space for it.
func (s *Set) add(sp *space, c *Change) {
	e := &entry{key: c.Key, updated: c.Updated, born: s.revision, rows: len(c.Vectors)}
	if n := len(sp.chunks); n == 0 || len(sp.chunks[n-1].owners)+e.rows > chunkRows {
		sp.chunks = append(sp.chunks, &chunk{})
	}
	e.chunk = sp.chunks[len(sp.chunks)-1]
	for _, v := range c.Vectors {
		e.chunk.flat = append(e.chunk.flat, v...)
		e.chunk.owners = append(e.chunk.owners, e)
	}
	sp.items[c.Key] = e
	s.rows += e.rows
}

// compact counts the rows of a replaced item, and rewrites a chunk that consists mostly of such.
func (s *Set) compact(sp *space, old *entry) {
	ch := old.chunk
	if ch.dead += old.rows; 2*ch.dead <= len(ch.owners) {
		return
	}
	fresh := &chunk{}
	for i, e := range ch.owners {
		if e.died.Load() == 0 {
			e.chunk = fresh
			fresh.flat = append(fresh.flat, ch.flat[i*s.dims:(i+1)*s.dims]...)
			fresh.owners = append(fresh.owners, e)
		}
	}
	s.rows -= len(ch.owners) - len(fresh.owners)
	for i, other := range sp.chunks {
		if other != ch {
			continue
		}
		if len(fresh.owners) > 0 {
			sp.chunks[i] = fresh
		} else {
			sp.chunks = append(sp.chunks[:i:i], sp.chunks[i+1:]...)
		}
		return
	}
}

// Bytes is the approximate memory that the vectors need.
func (s *Set) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return int64(s.rows) * RowBytes(s.dims)
}

// RowBytes is the approximate memory of one vector with its item.
func RowBytes(dims int) int64 { return int64(4*dims) + 200 }

// part is a chunk as a search sees it.
type part struct {
	namespace string
	flat      []float32
	owners    []*entry
}

// parts returns the chunks of a namespace and those below it; "" is above all.
func (s *Set) parts(prefix string) (list []part, count int, revision int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, sp := range s.spaces {
		if !rows.Within(name, prefix) {
			continue
		}
		for _, ch := range sp.chunks {
			list = append(list, part{name, ch.flat, ch.owners})
			count += len(ch.owners)
		}
	}
	return list, count, s.revision
}

// alone is how many numbers one goroutine multiplies: fewer are not worth a second one.
const alone = 2 << 20

// Rank returns the items of a namespace and those below it in the order of their similarity to a vector. The error is the cause of ctx.
func (s *Set) Rank(ctx context.Context, prefix string, query []float32) (*Ranking, error) {
	parts, count, revision := s.parts(prefix)
	workers := min(runtime.GOMAXPROCS(0), count*s.dims/alone+1, len(parts))
	if workers <= 1 {
		list := make([]Candidate, 0, count)
		for i := range parts {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			list = s.score(list, &parts[i], query, revision)
		}
		return NewRanking(list), nil
	}
	var next atomic.Int64
	var group sync.WaitGroup
	lists := make([][]Candidate, workers)
	for w := range workers {
		group.Go(func() {
			list := make([]Candidate, 0, count/workers+chunkRows)
			for i := int(next.Add(1)) - 1; i < len(parts) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				list = s.score(list, &parts[i], query, revision)
			}
			lists[w] = list
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	list := lists[0]
	for _, more := range lists[1:] {
		list = append(list, more...)
	}
	return NewRanking(list), nil
}

// score appends the items of a part that were there in a revision.
func (s *Set) score(list []Candidate, p *part, query []float32, revision int64) []Candidate {
	flat := p.flat
	for i := 0; i < len(p.owners); {
		e := p.owners[i]
		died := e.died.Load()
		if e.born > revision || died != 0 && died <= revision {
			flat = flat[e.rows*s.dims:]
			i += e.rows
			continue
		}
		best := float32(-2)
		for range e.rows {
			best = max(best, Dot(flat[:s.dims], query))
			flat = flat[s.dims:]
		}
		i += e.rows
		list = append(list, Candidate{Score: best, Updated: e.updated, Namespace: p.namespace, Key: e.key})
	}
	return list
}
