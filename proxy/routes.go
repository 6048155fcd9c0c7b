package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"understudy/id"
)

// kind classifies a call for the overlay. Its text is a label of metrics.
type kind string

const (
	raw     kind = "other"   // passes unchanged
	own     kind = "own"     // answered here: messages, events and pages
	state   kind = "state"   // the answer is a state
	history kind = "history" // a list of states
	threads kind = "threads" // a thread, or a list of threads
	wait    kind = "wait"    // creates a run; its result
	join    kind = "join"    // the result of a run
	stream  kind = "stream"  // creates a run; its events
	follow  kind = "follow"  // the events of a run or thread
	create  kind = "create"  // creates a background run
	watch   kind = "watch"   // the event stream of a thread (protocol v2), also as a WebSocket
	update  kind = "update"  // writes a state
	command kind = "command" // may create a run (protocol v2)
	remove  kind = "remove"  // deletes a thread
	prune   kind = "prune"   // deletes threads
)

// target is the kind of a call and the objects in its path.
type target struct {
	kind   kind
	thread id.Thread
	run    id.Run
	live   bool // of state: the newest
	input  bool // the body may contain messages for a graph, and has no run or update to follow
}

// platform is the additional path of the API on LangGraph Platform.
const platform = "/api/langgraph"

// classify also knows the pages, which not every proxy has, and that an understudy has the messages and events itself: what a proxy records there lacks runs and
// condensations, because states show every message already. While that upstream is down, recordings answer again.
func (p *Proxy) classify(method, path string) target {
	if pages := p.c.Pages; pages != "" && strings.HasPrefix(path, pages) && (len(path) == len(pages) || path[len(pages)] == '/') {
		return target{kind: own}
	}
	t := classify(method, path)
	if t.kind == own && p.c.Upstream.keeps.Load() {
		t.kind = raw
	}
	return t
}

// classify reads method and path. The path is as received, undecoded. Malformed ids are classified as raw, and refused by the
// upstream.
func classify(method, path string) target {
	path = strings.TrimPrefix(path, platform)
	rest, ok := strings.CutPrefix(path, "/threads")
	if !ok {
		return target{kind: raw, input: stateless(method, path)}
	}
	if rest == "" {
		return target{kind: pick(method, http.MethodPost, threads), input: method == http.MethodPost}
	}
	var parts [6]string
	n := 0
	for part := range strings.SplitSeq(rest[1:], "/") {
		if n == len(parts) || rest[0] != '/' {
			return target{kind: raw}
		}
		parts[n], n = part, n+1
	}
	if n == 1 && parts[0] == "search" {
		return target{kind: pick(method, http.MethodPost, threads)}
	}
	if n == 1 && parts[0] == "prune" {
		return target{kind: pick(method, http.MethodPost, prune)}
	}
	t := target{kind: raw, thread: id.Thread(canonical(parts[0]))}
	if t.thread == "" {
		return t
	}
	switch {
	case n == 1:
		switch method {
		case http.MethodGet, http.MethodPatch:
			t.kind = threads
		case http.MethodDelete:
			t.kind = remove
		}
	case n == 2:
		t.second(method, parts[1])
	case parts[1] == "state" && n == 3:
		// The checkpoint id may be any text.
		if method == http.MethodGet || method == http.MethodPost && parts[2] == "checkpoint" {
			t.kind = state
		}
	case parts[1] == "stream" && n == 3:
		if parts[2] == "events" {
			if t.kind = pick(method, http.MethodPost, watch); method == http.MethodGet {
				t.kind = watch // as a WebSocket
			}
		}
	case parts[1] == "runs":
		t.underRuns(method, parts[2:n])
	}
	return t
}

// stateless reports whether a call outside of threads sends messages to graphs.
func stateless(method, path string) bool {
	switch path {
	case "/runs", "/runs/stream", "/runs/wait", "/runs/batch", "/runs/crons":
		return method == http.MethodPost
	}
	cron, ok := strings.CutPrefix(path, "/runs/crons/")
	return ok && method == http.MethodPatch && !strings.Contains(cron, "/")
}

// second classifies /threads/{thread}/{name}.
func (t *target) second(method, name string) {
	get, post := method == http.MethodGet, method == http.MethodPost
	switch {
	case name == "state" && get:
		t.kind, t.live = state, true
	case name == "state" && post:
		t.kind = update
	case name == "history" && (get || post):
		t.kind = history
	case name == "copy" && post:
		t.kind = threads
	case name == "stream" && get:
		t.kind = follow
	case name == "runs" && post:
		t.kind = create
	case name == "commands" && post:
		t.kind, t.input = command, true
	case name == "messages" || name == "events":
		t.own(method)
	}
}

// underRuns classifies paths below /threads/{thread}/runs/.
func (t *target) underRuns(method string, parts []string) {
	if len(parts) == 1 && method == http.MethodPost {
		switch parts[0] {
		case "stream":
			t.kind = stream
		case "wait":
			t.kind = wait
		case "crons":
			t.input = true
		}
		return
	}
	if len(parts) != 2 {
		return
	}
	t.run = id.Run(canonical(parts[0]))
	if t.run == "" {
		return
	}
	switch parts[1] {
	case "stream":
		t.kind = pick(method, http.MethodGet, follow)
	case "join":
		t.kind = pick(method, http.MethodGet, join)
	case "messages", "events":
		t.own(method)
	}
}

// own classifies reads of our own routes, and their preflight requests.
func (t *target) own(method string) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		t.kind = own
	}
}

func pick(method, want string, k kind) kind {
	if method == want {
		return k
	}
	return raw
}

// canonical returns a UUID in the form used as key of recordings, or "".
func canonical(segment string) string {
	if strings.IndexByte(segment, '%') >= 0 {
		var err error
		if segment, err = url.PathUnescape(segment); err != nil {
			return ""
		}
	}
	return id.Canonical(segment)
}
