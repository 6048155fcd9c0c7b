package web

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/compress"
	"understudy/internal/fault"
	"understudy/internal/limits"
)

// List is an answer whose elements are created while it is sent.
type List struct {
	// Next appends the next element; io.EOF after the last. A nil result is a deleted element, which is skipped.
	Next func(ctx context.Context, dst []byte) ([]byte, error)
	// Head sets response headers that depend on the elements, and reports whether it has seen enough of them. nil: none do.
	Head func(ctx context.Context) (known bool, err error)
	// Close releases the resources of the elements. nil: there are none.
	Close func()
	// SourceReserves: the source of the elements reserves the memory of each piece, from Memory. Loads reports that it has to load the next one.
	SourceReserves bool
	Loads          func() bool
	// Before and after surround the list when it is part of an object.
	Before, After string

	ctx     context.Context   // of the request: user and choices
	encoder *compress.Encoder // nil: it is sent as it is
	packed  []byte            // buffer of the encoder
	pieces  [][]byte          // created before the answer began, each after a chunkHead
	Memory  *AnswerMemory     // nil until the answer is known to be long, unless SourceReserves
	taken   int64             // of reads
	some    bool              // at least one element exists
}

const (
	// WholeBytes is the size up to which a list is sent at once, with its length.
	WholeBytes = 1 << 20
	// PieceBytes is the approximate size of a write.
	PieceBytes = 256 << 10
)

// SendList answers with a list, and closes it. A short list is sent at once, and every error before the first byte has its status. A list that fails
// later is cut off: its client sees an incomplete answer, and the error is logged.
func (t *Transport) SendList(c *fiber.Ctx, l *List) error {
	ctx := c.UserContext()
	over, err := WhileConnected(c, l.begin)
	if err == nil && !over {
		err = t.begun(l)
	}
	if over || err != nil {
		l.done()
	}
	if err != nil {
		return err
	}
	if over {
		for i, piece := range l.pieces {
			l.pieces[i] = piece[len(chunkHead):]
		}
		return SendJSON(c, slices.Concat(l.pieces...))
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	l.encoder = t.encoder(c)
	l.ctx = context.WithoutCancel(ctx)
	return t.answer(c, &Open{list: l})
}

// begun reserves what a long list needs to be sent.
func (t *Transport) begun(l *List) error {
	if l.Memory == nil {
		l.Memory = &AnswerMemory{Budget: &t.Reads}
	}
	size := int64(0)
	for _, piece := range l.pieces {
		size += int64(cap(piece))
	}
	if l.SourceReserves {
		l.Memory.Hold(size)
	} else if !l.Memory.Take(size) {
		return limits.ErrReads
	}
	if err := t.Slot(); err != nil {
		l.Memory.Give(size)
		return err
	}
	l.taken, l.Memory.patience = size, t.WriteTimeout // a client that waits has its headers
	return nil
}

// Each is the list of the elements that show appends for rows, which are released one by one.
func Each[T any](rows []*T, show func(ctx context.Context, dst []byte, row *T) ([]byte, error)) *List {
	return &List{Next: func(ctx context.Context, dst []byte) ([]byte, error) {
		if len(rows) == 0 {
			return dst, io.EOF
		}
		row := rows[0]
		rows[0], rows = nil, rows[1:]
		return show(ctx, dst, row)
	}}
}

// PassOver returns nil for the error of a deleted element.
func PassOver(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (l *List) done() {
	if l.Close != nil {
		l.Close()
	}
	if l.taken > 0 {
		l.release(l.taken)
	}
	if l.encoder != nil {
		l.encoder.Release()
	}
}

// begin creates elements until the headers are known and the list has either ended or become too long to send at once.
func (l *List) begin(ctx context.Context) (over bool, err error) {
	for size, known := 0, false; !over && (size < WholeBytes || !known); {
		var piece []byte
		if piece, over, err = l.append(ctx, []byte(chunkHead)); err != nil {
			return false, err
		}
		l.pieces = append(l.pieces, piece)
		if size += len(piece) - len(chunkHead); size < WholeBytes && !over {
			continue
		}
		if known = l.Head == nil; !known {
			if known, err = l.Head(ctx); err != nil {
				return false, err
			}
		}
	}
	return over, nil
}

// append appends the next elements, about PieceBytes. over reports that they are the last, followed by the end of the
// list.
func (l *List) append(ctx context.Context, dst []byte) (out []byte, over bool, err error) {
	for from := len(dst); len(dst) < from+PieceBytes; {
		if err := ctx.Err(); err != nil {
			return dst, false, context.Cause(ctx)
		}
		n := len(dst)
		between := ","
		if !l.some {
			between = l.Before + "["
		}
		more, err := l.Next(ctx, append(dst, between...))
		if errors.Is(err, io.EOF) {
			if dst = dst[:n]; !l.some {
				dst = append(dst, between...)
			}
			return append(append(dst, ']'), l.After...), true, nil
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

// SendList writes the rest of a list.
func (o *Open) sendList(ctx context.Context) error {
	l := o.list
	for i, piece := range l.pieces {
		l.pieces[i], o.buf = nil, piece
		if err := o.writePiece(false); err != nil {
			return err
		}
		o.buf = nil
		l.release(int64(cap(piece)))
	}
	l.pieces = nil
	for over := false; !over; {
		if err := o.prepare(ctx); err != nil {
			return err
		}
		var failed error
		o.buf, over, failed = l.append(ctx, append(o.buf[:0], chunkHead...))
		if !l.SourceReserves {
			// The size of a piece is not known before it exists. Mostly it is like the one before.
			more := int64(cap(o.buf)) - l.taken
			l.Memory.Hold(more)
			l.taken += more
		}
		if err := errors.Join(o.writePiece(over), failed); err != nil {
			return err
		}
	}
	return nil
}

// writePiece sends the piece in the buffer, which begins with a chunkHead.
func (o *Open) writePiece(last bool) error {
	l := o.list
	if l.encoder == nil {
		return o.writeChunk()
	}
	piece := o.buf
	l.packed = l.encoder.Append(append(l.packed[:0], chunkHead...), piece[len(chunkHead):], last)
	o.buf = l.packed
	err := o.writeChunk()
	l.packed, o.buf = o.buf, piece
	return err
}

// prepare readies the buffer for the next piece. While others wait for memory, it waits behind them, and holds none.
func (o *Open) prepare(ctx context.Context) error {
	l := o.list
	switch {
	case l.SourceReserves:
		if l.Loads() { // it may wait
			o.buf = nil
		}
		return nil
	case l.taken > 0 && !l.Memory.scarce():
		return nil
	}
	n := max(l.taken, PieceBytes)
	o.buf = nil
	l.release(l.taken)
	if err := l.Memory.Wait(ctx, n); err != nil {
		return err
	}
	l.taken = n
	return nil
}

// release returns memory of pieces that were sent.
func (l *List) release(n int64) {
	l.taken -= n
	l.Memory.Give(n)
}
