package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/fault"
	"understudy/thread"
)

// list is an answer whose elements are made one after the other, while it is sent.
type list struct {
	// next appends the next element; io.EOF after the last. nil: an element that is gone, and is passed over.
	next func(ctx context.Context, dst []byte) ([]byte, error)
	// head sets what the head of the answer says of its elements, and reports whether all of that is known yet. nil: it says nothing.
	head func(ctx context.Context) (known bool, err error)
	// close lets go of what the elements are made of. nil: there is nothing to let go of.
	close func()
	// before and after stand around the list, when it is within an object.
	before, after string

	ctx    context.Context // of the request: who asks, and what they chose
	pieces [][]byte        // what was made before the answer began
	some   bool            // an element was made
}

const (
	// wholeBytes is up to how many bytes a list is sent whole, with its length.
	wholeBytes = 1 << 20
	// pieceBytes is about how much of a list is sent at once.
	pieceBytes = 256 << 10
)

// sendList answers with a list, and closes it. One that is short is sent whole, and every error before the first byte has its status. One that fails
// later is cut off: its client sees an answer without an end, and the log says why.
func (s *Server) sendList(c *fiber.Ctx, l *list) error {
	ctx := c.UserContext()
	over, err := reading(c, l.begin)
	if err == nil && !over {
		err = s.slot()
	}
	if over || err != nil {
		l.done()
	}
	if err != nil {
		return err
	}
	if over {
		return sendJSON(c, slices.Concat(l.pieces...))
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	l.ctx = context.WithoutCancel(ctx)
	return s.answer(c, &open{list: l})
}

// each is the list of the elements that show appends for rows, which are let go of one by one.
func each[T any](rows []*T, show func(ctx context.Context, dst []byte, row *T) ([]byte, error)) *list {
	return &list{next: func(ctx context.Context, dst []byte) ([]byte, error) {
		if len(rows) == 0 {
			return dst, io.EOF
		}
		row := rows[0]
		rows[0], rows = nil, rows[1:]
		return show(ctx, dst, row)
	}}
}

// passOver is nil for an element that is gone.
func passOver(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (l *list) done() {
	if l.close != nil {
		l.close()
	}
}

// begin makes elements until the head of the answer is known, and until there are no more, or too many to send them whole.
func (l *list) begin(ctx context.Context) (over bool, err error) {
	for size, known := 0, false; !over && (size < wholeBytes || !known); {
		var piece []byte
		if piece, over, err = l.append(ctx, nil); err != nil {
			return false, err
		}
		l.pieces = append(l.pieces, piece)
		if size += len(piece); size < wholeBytes && !over {
			continue
		}
		if known = l.head == nil; !known {
			if known, err = l.head(ctx); err != nil {
				return false, err
			}
		}
	}
	return over, nil
}

// append makes the next elements, about pieceBytes of them. over: they are the last, and the end of the list is with them.
func (l *list) append(ctx context.Context, dst []byte) (out []byte, over bool, err error) {
	for from := len(dst); len(dst) < from+pieceBytes; {
		if err := ctx.Err(); err != nil {
			return dst, false, context.Cause(ctx)
		}
		n := len(dst)
		between := ","
		if !l.some {
			between = l.before + "["
		}
		more, err := l.next(ctx, append(dst, between...))
		if errors.Is(err, io.EOF) {
			if dst = dst[:n]; !l.some {
				dst = append(dst, between...)
			}
			return append(append(dst, ']'), l.after...), true, nil
		}
		if err != nil {
			return dst[:n], false, err
		}
		if more == nil {
			dst = dst[:n]
			continue
		}
		dst, l.some = more, true
	}
	return dst, false, nil
}

// sendList writes the rest of a list.
func (o *open) sendList(ctx context.Context) error {
	pieces := o.list.pieces
	o.list.pieces = nil
	for i, piece := range pieces {
		if err := o.write(func(dst []byte) []byte { return append(dst, piece...) }); err != nil {
			return err
		}
		pieces[i] = nil
	}
	for over := false; !over; {
		var failed error
		err := o.write(func(dst []byte) []byte {
			dst, over, failed = o.list.append(ctx, dst)
			return dst
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) sendHistory(c *fiber.Ctx, q thread.HistoryQuery) error {
	if q.Limit == 0 { // to services no limit means all
		return sendJSON(c, []byte("[]"))
	}
	q.Metadata = slices.Clone(q.Metadata) // it is read after the body was given back
	h, err := reading(c, func(ctx context.Context) (thread.Entries, error) { return s.opts.Threads.ReadHistory(ctx, q) })
	if err != nil {
		return err
	}
	return s.sendList(c, &list{
		next: func(ctx context.Context, dst []byte) ([]byte, error) {
			snap, err := h.Next(ctx)
			if err != nil {
				return dst, err
			}
			dst = slices.Grow(dst, len(snap.Values)+len(snap.Metadata)+2048)
			return compat.AppendState(dst, snap, compat.StateParts{}), nil
		},
		head: func(ctx context.Context) (bool, error) {
			entries, partial, known, err := h.Partial(ctx)
			if err != nil {
				return false, fmt.Errorf("what is shown of thread %s: %w", q.Thread, err)
			}
			if partial {
				c.Set(compat.OverlayHeader, compat.PartialOverlay(entries))
			}
			return known, nil
		},
		close: h.Close,
	})
}
