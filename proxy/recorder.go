package proxy

import (
	"context"
	"net/http"

	"understudy/id"
	"understudy/thread/overlay"
)

// Call is one call of a client, as far as recording needs it.
type Call struct {
	Header http.Header    // end-to-end headers as they go upstream: credentials
	Choice overlay.Choice // what the request chose
	// Offline lets our own routes answer from what was recorded while the upstream cannot be reached. It is set for nobody who sent
	// credentials, since nobody is there to check them.
	Offline bool
}

// Recorder keeps what passes and puts transcripts into it. Its methods are called at the same time. They never fail: a body that is not
// understood is given back as it is, the same bytes. They may ask the upstream and wait for it, until ctx ends.
type Recorder interface {
	// State, History and Threads get whole answers: a state; a list of states; a thread or a list of threads. live: the newest state.
	State(ctx context.Context, c *Call, t id.Thread, live bool, body []byte) []byte
	// partial: transcripts of all entries of a history would be too much, and only the first ones, so many, are shown as they would be otherwise.
	History(ctx context.Context, c *Call, t id.Thread, body []byte) (out []byte, entries int, partial bool)
	Threads(ctx context.Context, c *Call, body []byte) []byte
	// Begin comes before a run is created on a thread: it returns the body to forward, and what follows the answer; nil: nothing does.
	Begin(ctx context.Context, c *Call, t id.Thread, body []byte) (Run, []byte)
	// Join is Begin for those who join a run, or with an empty run follow a thread.
	Join(ctx context.Context, c *Call, t id.Thread, r id.Run) Run
	// Watch is Begin for those who open the event stream of a thread (protocol v2).
	Watch(ctx context.Context, c *Call, t id.Thread) Run
	// Update comes before a state update is forwarded: as Begin.
	Update(ctx context.Context, c *Call, t id.Thread, body []byte) (Update, []byte)
	// Input is Update for other bodies that bring messages to graphs: stateless runs, crons, threads with supersteps, commands. t is the thread
	// of the route; "" none.
	Input(ctx context.Context, c *Call, t id.Thread, body []byte) (Update, []byte)
	// Gone is told of threads that were deleted through this proxy.
	Gone(ctx context.Context, t id.Thread)
}

// Run follows one answer that shows a run, in its order and by one caller at a time.
type Run interface {
	// Created tells of the run: an object with its run_id. It comes before Result and Event, or not at all.
	Created(ctx context.Context, run []byte)
	// Result is the answer of a wait or join.
	Result(ctx context.Context, body []byte) []byte
	// Event is an event of a stream that has data: the data to show (nil: as it is), and what becomes of the event. data and out are valid
	// until the next call.
	Event(ctx context.Context, event string, data []byte) (out []byte, fate overlay.Fate)
	// Ended comes when the upstream has ended a stream, before the client sees that. It only notes it.
	Ended()
	// End comes once, at last, whatever happened: the answer is over, or its client has left. It must not wait for anything: the client waits
	// for it.
	End(ctx context.Context)
}

// Update follows a state update.
type Update interface {
	// Done is told the answer, if it was a success.
	Done(ctx context.Context, answer []byte)
}
