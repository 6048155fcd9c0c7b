package checkpointer

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonplus"
)

// Pick names a part of the values of a checkpoint: a channel, or one item of the list in it.
type Pick struct {
	Channel string
	Whole   bool
	Item    int // unless Whole; negative ones count from the end
}

// Position returns the position of the item in a list of so many items; it may be outside of the list.
func (p Pick) Position(length int) int {
	if p.Item < 0 {
		return length + p.Item
	}
	return p.Item
}

// Picked returns what is picked of a channel: nothing, the whole value, or items.
func Picked(picks []Pick, channel string) (whole bool, items []Pick) {
	for _, p := range picks {
		if p.Channel != channel {
			continue
		}
		if p.Whole {
			return true, nil
		}
		items = append(items, p)
	}
	return false, items
}

// PartReader is an optional ability of a Reader: checkpoints with parts of their values, for callers that do not use all of them.
type PartReader interface {
	// LoadParts is LoadCheckpoint with the blobs of picked channels only. Of a list of which single items are picked, a blob may have these alone, as Some.
	LoadParts(ctx context.Context, k Key, picks []Pick) (*Tuple, error)
}

// Pick returns parts of what Values returns, each nil when there is none. ok is false when they are not known without all values, or not from rows alone.
func (s *Snapshots) Pick(ctx context.Context, k Key, picks []Pick) (parts []json.RawMessage, ok bool, err error) {
	rows, ok := s.rows.(PartReader)
	if !ok || k.NS != "" {
		return nil, false, nil
	}
	load := picks
	for {
		t, err := rows.LoadParts(ctx, k, load)
		if err != nil {
			return nil, false, err
		}
		if t == nil {
			return make([]json.RawMessage, len(picks)), true, nil
		}
		sh, err := s.shape(ctx, t.Shape)
		if err != nil || sh == nil || sh.bare {
			return nil, false, err
		}
		if more := sh.whole(t, load); len(more) > 0 {
			load = slices.Concat(load, more)
			continue
		}
		if n, err := s.needs(ctx, t, false); err != nil || n != nothingAsked {
			return nil, false, err
		}
		return s.parts(t, sh, picks), true, nil
	}
}

// whole returns the channels that are not loaded as a whole, and must be: delta channels, which may have to be asked for, and those of whose lists only a part is
// shown.
func (sh *shape) whole(t *Tuple, load []Pick) (more []Pick) {
	for _, name := range sh.out {
		whole, items := Picked(load, name)
		switch kind := sh.channels[name].kind; {
		case whole:
		case kind == kindDelta && gjson.GetBytes(t.Data, "channel_versions."+gjson.Escape(name)).Exists(), kind == kindAfterFinish && len(items) > 0:
			more = append(more, Pick{Channel: name, Whole: true})
		}
	}
	return more
}

func (s *Snapshots) parts(t *Tuple, sh *shape, picks []Pick) []json.RawMessage {
	out := make([]json.RawMessage, len(picks))
	inline := gjson.GetBytes(t.Data, "channel_values")
	for i, p := range picks {
		if !slices.Contains(sh.out, p.Channel) {
			continue
		}
		ch := sh.channels[p.Channel]
		if !p.Whole && ch.kind != kindUntracked && ch.kind != kindAfterFinish && !strings.HasPrefix(ch.kind, kindBarrier) {
			if b := t.blob(p.Channel); b != nil {
				if part, ok := s.item(b, p); ok {
					out[i] = part
					continue
				}
			}
		}
		whole, ok := s.appendChannel(nil, t, inline, p.Channel, ch)
		switch {
		case !ok:
		case p.Whole:
			out[i] = whole
		default:
			if list := gjson.ParseBytes(whole); list.IsArray() {
				items := list.Array()
				if at := p.Position(len(items)); at >= 0 && at < len(items) {
					out[i] = json.RawMessage(items[at].Raw)
				}
			}
		}
	}
	return out
}

// item returns one item of a stored list, nil when it has none there; ok is false when the value is stored in another way.
func (s *Snapshots) item(b *Blob, p Pick) (part json.RawMessage, ok bool) {
	var data []byte
	switch {
	case b.Some != nil:
		data = b.Some[p.Position(b.Length)]
	case b.Items != nil:
		if at := p.Position(len(b.Items)); at >= 0 && at < len(b.Items) {
			data = b.Items[at]
		}
	default:
		if b.Type != jsonplus.TypeMsgpack {
			return nil, false
		}
		value := b.Data
		if inner, ok := jsonplus.DeltaSnapshot(value); ok {
			value = inner
		}
		items, err := jsonplus.SplitArray(value)
		if err != nil {
			return nil, false
		}
		if at := p.Position(len(items)); at >= 0 && at < len(items) {
			data = items[at]
		}
	}
	if data == nil {
		return nil, true
	}
	list, err := s.values.appendItems(nil, [][]byte{data}, true)
	if err != nil {
		return nil, false
	}
	return json.RawMessage(list[1 : len(list)-1]), true
}
