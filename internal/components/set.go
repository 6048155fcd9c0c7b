package components

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"understudy/internal/logctx"
)

// Set is the bundles of all graphs of a server. Its methods may be called at once.
type Set struct {
	log      *slog.Logger
	building sync.Mutex // one project at a time
	project  Project    // as it is at the start
	bundles  atomic.Pointer[map[string]*Bundle]
	built    chan struct{} // closed when the first bundles are made, or will never be
	close    func()
}

// NewSet returns a set that Run fills.
func NewSet(p Project, log *slog.Logger) *Set {
	s := &Set{log: log, project: p, built: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.built) })
	s.bundles.Store(&map[string]*Bundle{})
	return s
}

// Run makes the bundles. Those that fail are logged and not served.
func (s *Set) Run(ctx context.Context) error {
	defer s.close()
	s.build(ctx, s.project)
	return nil
}

// Rebuild makes the bundles anew. One that fails is logged, and stays as it was.
func (s *Set) Rebuild(ctx context.Context, p Project) {
	select {
	case <-s.built:
		s.build(ctx, p)
	case <-ctx.Done():
	}
}

func (s *Set) build(ctx context.Context, p Project) {
	s.building.Lock()
	defer s.building.Unlock()
	old, bundles := *s.bundles.Load(), map[string]*Bundle{}
	for _, source := range p.Sources {
		began := time.Now()
		b, warnings, err := Build(ctx, p, source)
		if ctx.Err() != nil {
			return
		}
		log := s.log.With("graph", source.Graph)
		for _, w := range warnings {
			log.Warn("components were bundled with a warning", "at", w.At, "warning", w.Text)
		}
		if err != nil {
			for _, problem := range problemsOf(err) {
				log.Error("components do not bundle", "at", problem.At, "error", problem.Text)
			}
			if b = old[source.Graph]; b != nil {
				log.Warn("the components stay as they were")
				bundles[source.Graph] = b
			}
			continue
		}
		bundles[source.Graph] = b
		log.Info("components bundled", "bytes", fmt.Sprint(b.Size()), logctx.Took(time.Since(began)))
	}
	s.bundles.Store(&bundles)
}

// Bundle returns the components of a graph, and waits for the first ones to be made. It is nil when the graph has none.
func (s *Set) Bundle(ctx context.Context, graph string) (*Bundle, error) {
	select {
	case <-s.built:
		return (*s.bundles.Load())[graph], nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Size is the sum of the assets, in bytes.
func (b *Bundle) Size() int {
	n := 0
	for _, a := range b.Assets {
		n += len(a.Body)
	}
	return n
}
