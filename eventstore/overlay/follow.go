package overlay

import (
	"bytes"
	"context"
	"encoding/json"

	"understudy/id"
	"understudy/internal/jsonscan"
)

// Follow shows the successive values of one run when their checkpoints are unknown: it folds each into what was shown before, beginning
// with the transcript of a checkpoint. So messages added and condensed within the run remain too. It is owned by one goroutine.
type Follow struct {
	look  Look
	ahead Ahead
	at    *point // of the last values that were folded
	whole bool   // values contain all messages so far

	// raw are the last values that passed unchanged, up to the end of their messages, which begin at start, and rest is what followed.
	// behind reports that they have not been folded yet.
	raw, rest []byte
	start     int
	behind    bool
}

// Follow begins with the checkpoint from which the run started; with nothing for "" or an unrecorded one.
func (o *Overlay) Follow(ctx context.Context, t id.Thread, l Look, at id.Checkpoint, ahead *Ahead) (*Follow, error) {
	f := &Follow{look: l, ahead: *ahead, at: &point{}, whole: true}
	r := o.Read(t, l)
	defer r.Done()
	tr, err := r.transcript(ctx, at)
	if err != nil || tr == nil {
		return f, err
	}
	if f.at, err = r.point(ctx, tr); err != nil {
		return nil, err
	}
	f.whole = same(f.at.shown, f.at.list)
	return f, nil
}

// same reports whether the transcript equals the list.
func same(shown, list []*entry) bool {
	if len(shown) != len(list) {
		return false
	}
	for i, e := range shown {
		if e.key != list[i].key || e.stored != nil || e.marker != nil || e.anonymous {
			return false
		}
	}
	return true
}

// Passes reports whether the next values pass unchanged. It is cheap, and true for most values; otherwise Values returns
// what to show.
func (f *Follow) Passes(values []byte) bool { return !f.look.On || f.whole && f.grows(values) }

// Values returns the next values with the earlier messages. They must be valid JSON. If nothing was condensed they are returned
// unchanged.
func (f *Follow) Values(values json.RawMessage) (json.RawMessage, error) {
	if f.Passes(values) {
		return values, nil
	}
	start, end, ok := jsonscan.Member(values, f.look.Key)
	if !ok {
		return values, nil
	}
	items, ok := jsonscan.Elements(values[start:end])
	if !ok {
		return values, nil
	}
	if err := f.catchUp(); err != nil {
		return values, err
	}
	if ok, err := f.fold(values, items); err != nil || !ok {
		return values, err
	}
	if f.whole {
		n := len(bytes.TrimRight(values[:end-1], " \t\r\n"))
		f.raw, f.rest, f.start = append(f.raw[:0], values[:n]...), append(f.rest[:0], values[n:]...), start
		return values, nil
	}
	f.raw = nil
	return into(f.at.shown, values, start, end, f.look.Markers), nil
}

// catchUp folds the last values that passed, if they have not been folded.
func (f *Follow) catchUp() error {
	if !f.behind {
		return nil
	}
	before := append(f.raw, f.rest...)
	if items, ok := jsonscan.Elements(before[f.start:]); ok {
		if _, err := f.fold(before, items); err != nil {
			return err
		}
	}
	f.behind = false
	return nil
}

// grows reports whether values only add messages to the last ones that passed, and none must be shown differently. Then they need not
// be decoded.
func (f *Follow) grows(values []byte) bool {
	n := len(f.raw)
	if n == 0 || len(values) <= n || !bytes.Equal(f.raw, values[:n]) ||
		bytes.Contains(values[n:], summarization) || bytes.Contains(values[n:], legacyMark) {
		return false
	}
	i := jsonscan.Blank(values, n)
	for first := f.raw[n-1] == '['; i < len(values) && values[i] != ']'; first = false {
		if !first {
			if values[i] != ',' {
				return false
			}
			i = jsonscan.Blank(values, i+1)
		}
		from := i
		if i = jsonscan.Skip(values, i); i > len(values) || jsonscan.Text(values[from:i], "id") == "" {
			return false
		}
		i = jsonscan.Blank(values, i)
	}
	if i >= len(values) {
		return false
	}
	i = len(bytes.TrimRight(values[:i], " \t\r\n"))
	f.raw, f.rest, f.behind = append(f.raw, values[n:i]...), append(f.rest[:0], values[i:]...), true
	return true
}

// fold makes these values the base of the next ones; ok is false when their messages are not messages.
func (f *Follow) fold(values json.RawMessage, items []json.RawMessage) (ok bool, err error) {
	at, ok, err := f.at.fold(values, items, &f.ahead)
	if err != nil || !ok {
		return false, err
	}
	f.at, f.ahead.Deleted = at, nil
	f.whole = same(at.shown, at.list)
	return true, nil
}
