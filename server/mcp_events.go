package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/assistant"
	"understudy/bridge"
	"understudy/run"
	"understudy/server/mcp"
)

// mcpEvents answers with the stream of the server's own messages: that there are other tools than before. A client without a session has none.
func (h *mcpHandlers) mcpEvents(c *fiber.Ctx) error {
	if _, ok := mcp.ParseSession(c.Get(mcp.SessionHeader)); !ok {
		return c.Status(fiber.StatusMethodNotAllowed).Send(nil)
	}
	if err := h.Slot(); err != nil {
		return err
	}
	version, _ := h.tools.look(h.Requests, h.assistants)
	return h.StreamForm(c, &toolFollower{s: h, seen: version}, toolEvents{})
}

// toolsEvery is how long a look at the assistants counts for all streams. Changes on this server are seen at once.
const toolsEvery = 5 * time.Second

// toolWatch notices changes of the assistants, also on other servers, with one look for however many streams.
type toolWatch struct {
	mu      sync.Mutex
	changed chan struct{} // closed when the version changes, and at a change on this server
	version string        // of the assistants, as of the last look
	at      time.Time     // of the last look
	stale   bool          // something has changed on this server since
	looking bool
}

// change notes a change on this server.
func (w *toolWatch) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = true
	w.wake()
}

// wake wakes all streams. The caller holds mu.
func (w *toolWatch) wake() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// look returns the version of the assistants, and what is closed when it may have changed. When the last look was long ago the caller looks itself, unless another
// stream does.
func (w *toolWatch) look(ctx context.Context, all Assistants) (version string, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if (w.stale || time.Since(w.at) >= toolsEvery) && !w.looking {
		w.looking, w.stale = true, false
		w.mu.Unlock()
		seen, err := versionOf(ctx, all)
		w.mu.Lock()
		w.looking, w.at = false, time.Now()
		if err == nil && seen != w.version { // a database that fails is asked again later
			w.version = seen
			w.wake()
		}
	}
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.version, w.changed
}

// versionOf returns a text that changes with each change of an assistant.
func versionOf(ctx context.Context, all Assistants) (string, error) {
	ctx, cancel := context.WithTimeout(access.With(ctx, access.System), toolsEvery) // for all clients
	defer cancel()
	n, err := all.Count(ctx, assistant.Query{})
	if err != nil {
		return "", err
	}
	page, _, err := all.Search(ctx, assistant.Query{SortBy: "updated_at", Limit: 1})
	if err != nil {
		return "", err
	}
	version := strconv.Itoa(n)
	for _, a := range page {
		version += " " + string(a.ID) + " " + strconv.FormatInt(a.UpdatedAt.UnixNano(), 10) + " " + strconv.Itoa(a.Version)
	}
	return version, nil
}

// toolFollower is a stream of the changes of the tools, which never ends by itself.
type toolFollower struct {
	absent
	s    *mcpHandlers
	seen string
}

// Next implements run.Follower.
func (t *toolFollower) Next(ctx context.Context) ([]*bridge.Record, error) {
	for {
		version, changed := t.s.tools.look(t.s.Requests, t.s.assistants)
		if version != t.seen {
			t.seen = version
			return []*bridge.Record{message([]byte(mcp.ListChanged))}, nil
		}
		select {
		case <-changed:
		case <-time.After(toolsEvery):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

var _ run.Follower = (*toolFollower)(nil)
