package record

import (
	"context"

	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// updateDepth is how many checkpoints, from the head back, an update of a run may have followed.
const updateDepth = 8

// update shows a root `updates` event. With values in the same stream it follows the values shown last. Otherwise it reads the head from
// the upstream, which may be from before or after the step.
func (x *Run) update(ctx context.Context, data []byte) []byte {
	look := x.look(ctx)
	if !look.Updates || !graph.MayCondense(data) || !jsonscan.Valid(data) {
		return data
	}
	var shown []byte
	var err error
	if x.follow != nil {
		shown, err = x.follow.Update(data)
	} else {
		shown, err = x.updateAt(ctx, look, data)
	}
	if err != nil {
		x.r.unshown(ctx, x.thread, err)
		return data
	}
	return shown
}

// updateAt shows an update relative to the newest checkpoint, back to the one before the run, on which it condenses
// messages.
func (x *Run) updateAt(ctx context.Context, look overlay.Look, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, baseTime, errSlow)
	defer cancel()
	v, err := x.r.state(ctx, x.call, x.thread, "")
	if err != nil || !v.root() {
		return data, err
	}
	if _, err := x.r.ensure(ctx, x.call, x.thread, true, v); err != nil {
		return data, err
	}
	reading := x.r.overlay.Read(x.thread, look)
	defer reading.Done()
	at := id.Checkpoint(v.id)
	for n := 0; n < updateDepth && at != ""; n++ {
		shown, _, err := reading.Update(ctx, at, data)
		if err != nil || !sameBytes(shown, data) {
			return shown, err
		}
		link, err := x.r.link(ctx, x.thread, at)
		if err != nil || x.id != "" && link.Run != x.id {
			return data, err
		}
		at = link.Parent
	}
	return data, nil
}
