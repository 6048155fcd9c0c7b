package proxy

import (
	"context"
	"net/http"

	"understudy/eventstore/overlay"
	"understudy/id"
)

// Call is the part of a client's call that recording needs.
type Call struct {
	Header http.Header    // end-to-end headers for the upstream: credentials
	Choice overlay.Choice // what the request chose
	// Offline allows our own routes to answer from recordings while the upstream is unreachable. It is never set for a caller with
	// credentials, because only the upstream can check them.
	Offline bool
}

// Recorder records bodies and inserts transcripts into them. Its methods may be called concurrently. They never fail: a body that they
// do not understand is returned unchanged, as the same bytes. They may send requests to the upstream and wait for them until ctx ends.
type Recorder interface {
	// State, History and Threads take complete answers: a state; a list of states; a thread or a list of threads. live: the newest
	// state.
	State(ctx context.Context, c *Call, t id.Thread, live bool, body []byte) []byte
	// partial reports that transcripts of all entries would exceed the limit of histories, so only the first ones have theirs; entries is their
	// number.
	History(ctx context.Context, c *Call, t id.Thread, body []byte) (out []byte, entries int, partial bool)
	Threads(ctx context.Context, c *Call, body []byte) []byte
	// Begin is called before a run is created on a thread. It returns the body to forward, and the Run that follows the answer; nil:
	// none.
	Begin(ctx context.Context, c *Call, t id.Thread, body []byte) (Run, []byte)
	// Join is Begin for joining a run, or with an empty run for following a thread.
	Join(ctx context.Context, c *Call, t id.Thread, r id.Run) Run
	// Watch is Begin for opening the event stream of a thread (protocol v2).
	Watch(ctx context.Context, c *Call, t id.Thread) Run
	// Update is called before a state update is forwarded, like Begin.
	Update(ctx context.Context, c *Call, t id.Thread, body []byte) (Update, []byte)
	// Input is Update for other bodies that contain messages for graphs: stateless runs, crons, threads with supersteps, commands. t is the
	// thread of the route; "" if none.
	Input(ctx context.Context, c *Call, t id.Thread, body []byte) (Update, []byte)
	// Gone is called for threads that were deleted through this proxy.
	Gone(ctx context.Context, t id.Thread)
}

// Run follows one answer that shows a run. Its methods are called in order, by one goroutine at a time.
type Run interface {
	// Created receives the run: an object with its run_id. It is called before Result and Event, or not at all.
	Created(ctx context.Context, run []byte)
	// Result returns the body to show for the answer of a wait or join.
	Result(ctx context.Context, body []byte) []byte
	// Event takes an event of a stream that has data. It returns the data to show (nil: unchanged) and whether to show the event. data and
	// out are valid until the next call.
	Event(ctx context.Context, event string, data []byte) (out []byte, fate overlay.Fate)
	// Ended is called when the upstream has ended a stream, before the client sees that. It must not block.
	Ended()
	// End is called last, exactly once, in every case: the answer is over, or its client has left. It must not block: the client waits for
	// it.
	End(ctx context.Context)
}

// Update follows a state update.
type Update interface {
	// Done receives the answer, if it was a success.
	Done(ctx context.Context, answer []byte)
}
