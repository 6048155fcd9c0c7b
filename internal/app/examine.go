package app

import (
	"context"
	"sync"

	"understudy/internal/app/doctor"
	"understudy/internal/config"
	"understudy/internal/finding"
)

// examiner checks this server and its surroundings while it serves, with its configuration as it would be read now. One examination runs at a time, because
// each starts an interpreter; those that ask meanwhile share what it finds.
type examiner struct {
	source  config.Source
	loaded  func() map[string]error
	serves  func(graph string) bool
	examine func(context.Context, doctor.Examination) []finding.Finding // doctor.Examine

	mu      sync.Mutex
	current *examination // nil: none runs
}

// examination is one that runs in the first request that asked for it.
type examination struct {
	over     chan struct{} // closed at its end
	whole    bool          // it was not cut short; set before over is closed
	findings []finding.Finding
}

// Examine implements server.Doctor.
func (e *examiner) Examine(ctx context.Context) ([]finding.Finding, error) {
	for {
		e.mu.Lock()
		x := e.current
		if x == nil {
			x = &examination{over: make(chan struct{})}
			e.current = x
			e.mu.Unlock()
			return e.run(ctx, x)
		}
		e.mu.Unlock()
		select {
		case <-x.over:
			if x.whole {
				return x.findings, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// run examines. When its own request ends early, one of those that wait begins anew.
func (e *examiner) run(ctx context.Context, x *examination) ([]finding.Finding, error) {
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.current = nil
		close(x.over)
	}()
	x.findings = e.examine(ctx, doctor.Examination{Source: e.source, Loaded: e.loaded, Serves: e.serves})
	x.whole = ctx.Err() == nil
	return x.findings, ctx.Err()
}
