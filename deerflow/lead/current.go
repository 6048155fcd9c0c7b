package lead

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"understudy/deerflow/settings"
	"understudy/graph/agent"
)

// A build without some of the tools in Python is repeated with the first run after a pause, which grows: their process may have died, or a package was installed since.
const firstRetry, lastRetry = 30 * time.Second, 10 * time.Minute

// building is a build of the agent. It may take as long as the modules of tools in Python need.
type building struct {
	of      *settings.Settings
	lacking bool          // tools in Python; after done
	waiting int           // runs; under Graph.mu
	done    chan struct{} // closed at its end
	err     error         // after done
}

// current returns the agent for the settings as they are now. The first run after a change waits for the build of it. All others have the agent before meanwhile,
// if there is one: no run waits for the tools of another user.
func (g *Graph) current(ctx context.Context, run bool) (*agent.Agent, error) {
	for {
		b, built, err := g.next(run)
		if b == nil || err != nil {
			return built, err
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		g.mu.Lock()
		b.waiting--
		g.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if now, _ := g.o.Settings(); b.err != nil && now == b.of {
			return nil, fmt.Errorf("build %s: %w", Name, b.err)
		}
	}
}

// next returns the agent to use, or the build to wait for, which it begins if there is none.
func (g *Graph) next(run bool) (*building, *agent.Agent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, err := g.o.Settings() // under mu: older settings must not undo newer ones
	if err != nil {
		return nil, nil, err
	}
	again := g.of == s
	if again && (!g.lacking || !run || time.Now().Before(g.retry)) {
		return nil, g.built, nil
	}
	if g.ctx.Err() != nil {
		return nil, nil, errClosed
	}
	if g.building == nil {
		b := &building{of: s, done: make(chan struct{})}
		g.building = b
		g.work.Go(func() { g.finish(b) })
	}
	if g.built != nil && (again || !run || g.building.waiting > 0) {
		return nil, g.built, nil
	}
	g.building.waiting++
	return g.building, nil, nil
}

var errClosed = errors.New("the agent is closed")

// finish makes the agent of a build.
func (g *Graph) finish(b *building) {
	built, err := g.tryBuild(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of != b.of || !b.lacking {
		g.pause.Reset()
	}
	if b.err = err; err == nil {
		g.of, g.built, g.lacking = b.of, built, b.lacking
	}
	if b.lacking {
		g.retry = time.Now().Add(g.pause.Next())
	}
	g.building = nil
	close(b.done)
}

func (g *Graph) tryBuild(b *building) (built *agent.Agent, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return g.build(g.ctx, b)
}

// Build builds the agent. The error says why it cannot be built, in the words of the log.
func (g *Graph) Build(ctx context.Context) error {
	_, err := g.current(ctx, true)
	return err
}

// Prepare builds the agent, so that no run waits for tools in Python, and logs what is wrong with it. The error is that of ctx.
func (g *Graph) Prepare(ctx context.Context) error {
	if s, err := g.o.Settings(); err != nil || len(s.Models) == 0 {
		return nil // the first run says so
	}
	err := g.Build(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		g.o.Log.Warn("the agent cannot be built; its runs fail until config.yaml is corrected", "error", err, "fix", fixConfig)
	}
	return nil
}

// Close ends what the agent has started: builds, and MCP servers.
func (g *Graph) Close() error {
	g.mu.Lock()
	g.stop() // under mu: no build begins after it
	g.mu.Unlock()
	g.work.Wait()
	if g.servers != nil {
		g.servers.close()
	}
	return nil
}
