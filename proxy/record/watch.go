package record

import (
	"context"
	"strings"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonscan"
	"understudy/proxy"
)

// watchDepth is how many checkpoints, from the head back, the values of an event stream are compared with.
const watchDepth = 256

// watch finds the checkpoints of `values` in a thread's event stream (protocol v2). Such a stream replays the thread run by run, and its
// messages are abridged, so their bytes differ from the recorded ones: checkpoints are found by the ids of their messages.
type watch struct {
	lists  []listed // newest first
	fresh  bool     // a run began: the next values may follow any checkpoint
	loaded map[id.Checkpoint]bool
}

// listed is a checkpoint and the ids of its messages, each followed by a line feed.
type listed struct {
	at  id.Checkpoint
	ids string
}

// Watch follows the event stream of a thread.
func (r *Recorder) Watch(_ context.Context, c *proxy.Call, t id.Thread) proxy.Run {
	x := r.follow(c, t)
	x.watch = &watch{fresh: true, loaded: map[id.Checkpoint]bool{}}
	return x
}

// watched returns the event to show: {…, "params": {"namespace": [], "data": …}}.
func (x *Run) watched(ctx context.Context, event string, data []byte) []byte {
	if event != "values" && event != "lifecycle" || !jsonscan.Valid(data) {
		return data
	}
	params, end, ok := jsonscan.Member(data, "params")
	if !ok || !root(data[params:end]) {
		return data
	}
	from, to, ok := jsonscan.Member(data[params:end], "data")
	if !ok {
		return data
	}
	from, to = params+from, params+to
	if event == "lifecycle" {
		x.watch.fresh = x.watch.fresh || jsonscan.Text(data[from:to], "event") == "running"
		return data
	}
	shown, err := x.watchedValues(ctx, data[from:to])
	switch {
	case err != nil:
		x.r.unshown(ctx, x.thread, err)
		return data
	case sameBytes(shown, data[from:to]):
		return data
	}
	return jsonscan.Splice(data, from, to, shown)
}

// root reports whether the namespace of an event is empty.
func root(params []byte) bool {
	namespace, ok := jsonscan.Elements(jsonscan.Raw(params, "namespace"))
	return ok && len(namespace) == 0
}

// watchedValues shows values as of the checkpoint with the same messages. Values without a checkpoint continue those shown
// before.
func (x *Run) watchedValues(ctx context.Context, values []byte) ([]byte, error) {
	look := x.look(ctx)
	messages, ok := jsonscan.Elements(jsonscan.Raw(values, look.Key))
	if !look.On || !ok {
		return values, nil
	}
	list := make([]string, len(messages))
	for i, m := range messages {
		list[i] = jsonscan.Text(m, "id")
	}
	ids := lines(list)
	at, found := x.watch.find(ids)
	if !found && x.watch.fresh {
		if err := x.learn(ctx, look); err != nil {
			return values, err
		}
		if at, found = x.watch.find(ids); !found {
			at, found = x.watch.before(ids)
		}
	}
	x.watch.fresh = false
	if found || x.follow == nil {
		var err error
		if x.follow, err = x.r.overlay.Follow(ctx, x.thread, look, at, x.ahead(ctx)); err != nil {
			return values, err
		}
	}
	return x.follow.Values(values)
}

func lines(ids []string) string {
	var b strings.Builder
	for _, i := range ids {
		b.WriteString(i)
		b.WriteByte('\n')
	}
	return b.String()
}

// find returns the newest checkpoint with these messages.
func (w *watch) find(ids string) (id.Checkpoint, bool) {
	for _, l := range w.lists {
		if l.ids == ids {
			return l.at, true
		}
	}
	return "", false
}

// before returns the newest checkpoint whose messages are the beginning of these.
func (w *watch) before(ids string) (id.Checkpoint, bool) {
	for _, l := range w.lists {
		if l.ids != "" && strings.HasPrefix(ids, l.ids) {
			return l.at, true
		}
	}
	return "", false
}

// learn reads the messages of the upstream's head and of its ancestors that are not known yet.
func (x *Run) learn(ctx context.Context, look overlay.Look) error {
	if x.base != nil { // of an earlier run of the thread
		x.base.cancel()
		<-x.base.done
		x.base = nil
	}
	at, err := x.find(ctx)
	if err != nil {
		return err
	}
	reading := x.r.overlay.Read(x.thread, look)
	defer reading.Done()
	var more []listed
	var seen []id.Checkpoint
	for len(seen) < watchDepth && at != "" && !x.watch.loaded[at] {
		ids, err := reading.List(ctx, at)
		if err != nil {
			return err
		}
		if ids != nil {
			more = append(more, listed{at, lines(ids)})
		}
		seen = append(seen, at)
		link, err := x.r.link(ctx, x.thread, at)
		if err != nil {
			return err
		}
		at = link.Parent
	}
	for _, c := range seen {
		x.watch.loaded[c] = true
	}
	x.watch.lists = append(more, x.watch.lists...)
	if len(x.watch.lists) > watchDepth {
		x.watch.lists = x.watch.lists[:watchDepth]
	}
	return nil
}
