package record

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonscan"
	"understudy/proxy"
	"understudy/thread/partial"
)

// baseTime is how long the values of a run wait for the checkpoint that they follow.
const baseTime = 2 * time.Second

// Run follows one run of a thread, from before it is created or from when a client joins it, to the end of the client's answer.
// Result and Event are called by one goroutine at a time; Created before them, End after.
type Run struct {
	r       *Recorder
	call    *proxy.Call
	thread  id.Thread
	graph   string        // of the request; "" when absent
	start   id.Checkpoint // from which the request starts; "": the head
	removed map[string]bool
	// deleted are condensed messages that the request deletes; known is the checkpoint that its client knew.
	deleted []string
	known   id.Checkpoint
	gone    []string // the same; deleted is emptied once it is noted
	exit    bool     // only the last checkpoint is saved
	follows bool     // follows a thread: one run after another
	early   bool     // values will be streamed

	watch      *watch // nil: not an event stream of a thread
	id         id.Run
	summarizer *overlay.Summarizer
	base       *base
	follow     *overlay.Follow
	steps      *steps
	words      *words // nil: its answers are not kept, or there are none yet
	whole      bool   // its stream began with the run
}

// base is the search for the checkpoint from which a run starts.
type base struct {
	done   chan struct{}
	cancel context.CancelFunc
	at     id.Checkpoint
	graph  string
	err    error
}

// Begin prepares a run before it is created. It returns the body to forward, without messages that the client has only from a
// transcript.
func (r *Recorder) Begin(ctx context.Context, c *proxy.Call, t id.Thread, body []byte) (proxy.Run, []byte) {
	x := r.follow(c, t)
	if !jsonscan.Valid(body) {
		return x, body
	}
	if name := jsonscan.Text(body, "assistant_id"); !id.IsUUID(name) {
		x.graph = name
	}
	x.exit = jsonscan.Text(body, "durability") == "exit" || string(jsonscan.Raw(body, "checkpoint_during")) == "false" && isNull(jsonscan.Raw(body, "durability"))
	checkpoint := jsonscan.Raw(body, "checkpoint")
	nested := jsonscan.Text(checkpoint, "checkpoint_ns") != ""
	if x.start = checkpointID(jsonscan.Text(body, "checkpoint_id")); x.start == "" && !nested {
		x.start = checkpointID(jsonscan.Text(checkpoint, "checkpoint_id"))
	}
	modes := jsonscan.Raw(body, "stream_mode")
	x.early = isNull(modes) || bytes.Contains(modes, []byte(`"values"`))
	input, command := jsonscan.Raw(body, "input"), jsonscan.Raw(body, "command")
	update := jsonscan.Raw(command, "update")
	x.removed = overlay.Removals(input, update)
	if nested || !overlay.MayEcho(input) && !overlay.MayEcho(command) {
		return x, body
	}
	now, deleted, err := r.clean(ctx, c, t, x.start, x.graph, body, "input", "command")
	if err != nil {
		r.uncleaned(ctx, t, err)
		return x, body
	}
	x.deleted, x.known, x.gone = deleted.ids, deleted.after, deleted.ids
	return x, now
}

// Join follows an existing run, or with an empty run all runs of a thread.
func (r *Recorder) Join(_ context.Context, c *proxy.Call, t id.Thread, run id.Run) proxy.Run {
	if t == "" {
		return nil
	}
	x := r.follow(c, t)
	x.follows = run == ""
	if plain(string(run)) {
		x.id = run
	}
	return x
}

func (r *Recorder) follow(c *proxy.Call, t id.Thread) *Run {
	return &Run{r: r, call: c, thread: t, summarizer: r.overlay.Summarizer(t)}
}

// Created notes that the upstream created the run: answer is its object, or has its `run_id`.
func (x *Run) Created(ctx context.Context, answer []byte) {
	x.accepted(ctx)
	x.begins(answer)
}

// accepted stores what the request deleted, once the upstream has accepted it.
func (x *Run) accepted(ctx context.Context) {
	if len(x.deleted) > 0 {
		x.r.noteDeleted(ctx, x.thread, x.known, x.deleted)
		x.deleted = nil
	}
}

// begins notes the id of the run.
func (x *Run) begins(object []byte) {
	run := id.Run(jsonscan.Text(object, "run_id"))
	if !plain(string(run)) || run == x.id {
		return
	}
	if x.id != "" && x.follows {
		x.leave()
		x.r.later(x.call, x.thread)
	}
	x.id = run
	if x.exit {
		x.steps = &steps{pool: newPool()}
		x.r.exits.Put(exitKey{x.thread, run}, x.steps, 1)
	}
}

// Result returns the body to show for the answer of wait and join.
func (x *Run) Result(ctx context.Context, body []byte) []byte {
	x.accepted(ctx)
	ctx = overlay.With(ctx, x.call.Choice)
	if !jsonscan.Valid(body) {
		return body
	}
	now, err := x.result(ctx, body)
	if err != nil {
		x.r.unshown(ctx, x.thread, err)
		return body
	}
	return now
}

func (x *Run) result(ctx context.Context, body []byte) ([]byte, error) {
	r := x.r
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, errSlow)
	defer cancel()
	if !r.overlay.Look(ctx, x.graph, overlay.Wait).On && x.graph != "" {
		return body, nil
	}
	v, err := r.state(ctx, x.call, x.thread, "")
	if err != nil || !v.root() {
		return body, err
	}
	look := r.overlay.Look(ctx, v.graph, overlay.Wait)
	messages := jsonscan.Raw(body, look.Key)
	if !look.On || len(messages) == 0 || messages[0] != '[' {
		return body, nil
	}
	if _, err := r.ensure(ctx, x.call, x.thread, true, v); err != nil {
		return body, err
	}
	at, found, err := r.ofVersion(ctx, x.thread, v.id, versionOf(messages))
	if err != nil {
		return body, err
	}
	if found {
		reading := r.overlay.Read(x.thread, look)
		defer reading.Done()
		return reading.Values(ctx, at, body, overlay.RecordView)
	}
	from := v.id
	if x.id != "" {
		if from, err = r.store.Before(ctx, x.thread, v.id, x.id); err != nil {
			return body, err
		}
	}
	f, err := r.overlay.Follow(ctx, x.thread, look, from, x.ahead(ctx))
	if err != nil {
		return body, err
	}
	return f.Values(body)
}

func (x *Run) ahead(ctx context.Context) *overlay.Ahead {
	return &overlay.Ahead{Grown: true, Run: x.id, Deleted: x.gone, ByClient: func(mid string) bool {
		// Only the upstream knows the input of a run that was joined. It is requested once, successful or not: this is called for each
		// message that left the list, while the reader waits.
		if x.removed == nil && x.id != "" {
			of, err := x.r.called(ctx, x.call, x.thread, x.id)
			if err != nil {
				x.r.unshown(ctx, x.thread, err)
			}
			x.removed = overlay.Removals(of.input, jsonscan.Raw(of.command, "update"))
		}
		return x.removed[mid]
	}}
}

// Event returns the data to show for an event of a stream: the same bytes when nothing changes.
func (x *Run) Event(ctx context.Context, event string, data []byte) (out []byte, fate overlay.Fate) {
	switch {
	case x.watch != nil:
		return x.watched(ctx, event, data), overlay.Shown
	case event == "metadata" && jsonscan.Text(data, "status") == "run_done":
		// The stream of a thread ends a run so. It is not the beginning of an attempt, which discards what was streamed before.
		if id.Run(jsonscan.Text(data, "run_id")) == x.id {
			x.Ended()
		}
		return data, overlay.Shown
	case event == "metadata":
		x.accepted(ctx)
		x.begins(data)
		if x.whole = true; x.words != nil {
			x.words.again()
		}
		if x.early && x.id != "" && x.look(ctx).On {
			x.seek(ctx)
		}
		return data, overlay.Shown
	case event == "error":
		x.Ended()
	case event == "values":
		return x.values(ctx, data), overlay.Shown
	case event == "updates":
		return x.update(ctx, data), overlay.Shown
	}
	return data, x.judge(ctx, event, data)
}

// leave releases what belongs to one run.
func (x *Run) leave() {
	if x.base != nil {
		x.base.cancel()
		<-x.base.done
	}
	if x.words != nil {
		if x.follows {
			x.r.said.ends(x.words)
		} else {
			x.r.said.left(x.words)
		}
	}
	x.base, x.follow, x.steps, x.removed, x.gone, x.words, x.whole = nil, nil, nil, nil, nil, nil, false
	x.summarizer = x.r.overlay.Summarizer(x.thread)
}

// look returns how to show the stream.
func (x *Run) look(ctx context.Context) overlay.Look {
	graph := x.graph
	if graph == "" && x.r.byGraph {
		if _, err := x.find(ctx); err == nil {
			graph = x.base.graph
		}
	}
	return x.r.overlay.Look(overlay.With(ctx, x.call.Choice), graph, overlay.Stream)
}

func (x *Run) values(ctx context.Context, data []byte) []byte {
	look := x.look(ctx)
	if x.steps != nil && jsonscan.Valid(data) {
		x.steps.add(data, look.Key)
	}
	if !look.On {
		return data
	}
	if x.follow == nil {
		at, err := x.find(ctx)
		if err == nil {
			err = x.open(ctx, at, data)
		}
		if err != nil {
			x.r.unshown(ctx, x.thread, err)
			return data
		}
	}
	if x.follow.Passes(data) || !jsonscan.Valid(data) {
		return data
	}
	shown, err := x.follow.Values(data)
	if err != nil {
		x.r.unshown(ctx, x.thread, err)
	}
	return shown
}

// open begins to follow. A run that was joined midway may have saved the checkpoint of the first values.
func (x *Run) open(ctx context.Context, at id.Checkpoint, data []byte) (err error) {
	look := x.look(ctx)
	if x.id != "" && jsonscan.Valid(data) {
		l, found, err := x.r.store.OfVersion(ctx, x.thread, versionOf(jsonscan.Raw(data, look.Key)))
		if err != nil {
			return err
		}
		if found && l.Run == x.id {
			at = l.ID
		}
	}
	x.follow, err = x.r.overlay.Follow(ctx, x.thread, look, at, x.ahead(ctx))
	return err
}

// find returns the checkpoint from which the run starts. The search starts on the first call; the caller waits for a limited time.
func (x *Run) find(ctx context.Context) (id.Checkpoint, error) {
	x.seek(ctx)
	waiting, cancel := context.WithTimeoutCause(ctx, baseTime, errSlow)
	defer cancel()
	select {
	case <-x.base.done:
		return x.base.at, x.base.err
	case <-waiting.Done():
		return "", context.Cause(waiting)
	}
}

// seek starts the search. leave waits for its end.
func (x *Run) seek(ctx context.Context) {
	if x.base != nil {
		return
	}
	searching, cancel := context.WithCancel(ctx)
	b := &base{done: make(chan struct{}), cancel: cancel}
	x.base = b
	run := x.id
	go func() {
		defer close(b.done)
		defer func() {
			if p := recover(); p != nil {
				b.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		b.at, b.graph, b.err = x.search(searching, run)
	}()
}

func (x *Run) search(ctx context.Context, run id.Run) (at id.Checkpoint, graph string, err error) {
	v, err := x.r.state(ctx, x.call, x.thread, x.start)
	if err != nil {
		return "", "", err
	}
	if !v.root() {
		return "", v.graph, nil // there were no messages before
	}
	if _, err := x.r.ensure(ctx, x.call, x.thread, x.start == "", v); err != nil {
		return "", v.graph, err
	}
	if x.start != "" || run == "" {
		return v.id, v.graph, nil
	}
	at, err = x.r.store.Before(ctx, x.thread, v.id, run)
	return at, v.graph, err
}

// judge returns the fate of an event that a summarizer may have caused, and keeps the other messages. Without the overlay, and on failure,
// the fate is Shown.
func (x *Run) judge(ctx context.Context, event string, data []byte) overlay.Fate {
	if !overlay.MayHide(event) {
		return overlay.Shown
	}
	on := x.look(ctx).On
	keeps := partial.Wants(event) && x.id != "" && (x.r.byGraph || x.r.overlay.KeepsPartial(x.graph))
	if !on && !keeps || !jsonscan.Valid(data) {
		return overlay.Shown
	}
	fate, err := x.summarizer.Judge(ctx, event, data, func() id.Checkpoint {
		at, err := x.find(ctx)
		if err != nil {
			return ""
		}
		return at
	})
	if err != nil {
		x.r.unshown(ctx, x.thread, err)
		return overlay.Shown
	}
	if keeps && (fate == overlay.Shown || fate == overlay.Held) {
		x.keep(event, data)
	}
	if !on {
		return overlay.Shown
	}
	return fate
}

// keep stores an event with parts of an answer, in case the run ends before it saves the answer.
func (x *Run) keep(event string, data []byte) {
	if x.words == nil {
		x.words = x.r.said.open(x.thread, x.id, x.whole, !x.follows)
	}
	x.r.said.add(x.words, event, data)
}

// Ended notes that the upstream has ended the answer, or that its run has failed. It may be called more than once, and before Event
// or End.
func (x *Run) Ended() {
	if x.words != nil {
		x.r.said.ends(x.words)
	}
}

// End ends the Run. Its checkpoints are recorded in the background.
func (x *Run) End(context.Context) {
	x.leave()
	x.r.later(x.call, x.thread)
}

// uncleaned logs why a body was forwarded unchanged.
func (r *Recorder) uncleaned(ctx context.Context, t id.Thread, err error) {
	if ctx.Err() == nil {
		r.log.WarnContext(ctx, "request body forwarded unchanged; it may contain condensed messages", "thread_id", t, "error", err)
	}
}
