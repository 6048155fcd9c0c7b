package checkpointer

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
)

// blob returns the stored value of a channel; nil when it holds nothing, or what it holds is in Data.
func (t *Tuple) blob(channel string) *Blob {
	for i := range t.Blobs {
		if b := &t.Blobs[i]; b.Channel == channel && b.Type != "empty" {
			return b
		}
	}
	return nil
}

// valuesOf shows the values of a checkpoint.
func (s *Snapshots) valuesOf(t *Tuple, c content) json.RawMessage {
	if c.values != nil {
		return c.values
	}
	inline := gjson.GetBytes(t.Data, "channel_values")
	if c.shape == nil {
		return s.valuesWithoutShape(t, inline)
	}
	if c.shape.bare {
		name := c.shape.out[0]
		if b, ok := s.appendChannel(nil, t, inline, name, c.shape.channels[name]); ok {
			return b
		}
		return json.RawMessage("null")
	}
	out := append(make([]byte, 0, len(inline.Raw)+64), '{') // not grown step by step: inline values may be large
	for _, name := range c.shape.out {
		ch := c.shape.channels[name]
		mark := len(out)
		if mark > 1 {
			out = append(out, ',')
		}
		if ch.key == nil {
			ch.key = jsonobj.Quote(name)
		}
		out = append(append(out, ch.key...), ':')
		var ok bool
		if out, ok = s.appendChannel(out, t, inline, name, ch); !ok {
			out = out[:mark]
		}
	}
	return append(out, '}')
}

// appendChannel appends the value of one channel; ok is false when it has none to show.
func (s *Snapshots) appendChannel(dst []byte, t *Tuple, inline gjson.Result, name string, ch channel) (_ []byte, ok bool) {
	if ch.kind == kindUntracked || strings.HasPrefix(ch.kind, kindBarrier) {
		return dst, false
	}
	b := t.blob(name)
	if b == nil {
		// Inline, a delta channel has only a mark that there is a blob.
		if v, ok := member(inline, name); ok && ch.kind != kindDelta {
			return appendInline(dst, v), true
		}
		if ch.empty != nil {
			return append(dst, ch.empty...), true
		}
		return dst, false
	}
	switch ch.kind {
	case kindTopic:
		if items, err := b.SplitList(); err == nil && len(items) == 0 {
			return dst, false
		}
	case kindAfterFinish:
		pair, err := b.SplitList()
		if err != nil || len(pair) != 2 || string(pair[1]) != "\xc3" {
			return dst, false
		}
		return s.appendJSON(dst, jsonplus.TypeMsgpack, pair[0]), true
	}
	if b.Items != nil {
		return s.appendList(dst, b.Items), true
	}
	return s.appendJSON(dst, b.Type, b.Data), true
}

// valuesWithoutShape shows all channels that are not LangGraph's own. It is what is left when no graph can be asked.
func (s *Snapshots) valuesWithoutShape(t *Tuple, inline gjson.Result) json.RawMessage {
	out := []byte{'{'}
	gjson.GetBytes(t.Data, "channel_versions").ForEach(func(key, _ gjson.Result) bool {
		name := key.String()
		if internalChannel(name) {
			return true
		}
		mark := len(out)
		if mark > 1 {
			out = append(out, ',')
		}
		out = append(jsonobj.AppendText(out, name), ':')
		var ok bool
		if out, ok = s.appendChannel(out, t, inline, name, channel{}); !ok {
			out = out[:mark]
		}
		return true
	})
	return append(out, '}')
}

// member finds a key of an object as it is, without path syntax.
func member(object gjson.Result, name string) (found gjson.Result, ok bool) {
	object.ForEach(func(key, value gjson.Result) bool {
		if key.Str == name {
			found, ok = value, true
		}
		return !ok
	})
	return found, ok
}

// appendInline appends a primitive that is kept in the checkpoint itself. Python escapes text there, and knows NaN.
func appendInline(dst []byte, v gjson.Result) []byte {
	if v.Type == gjson.String && strings.IndexByte(v.Raw, '\\') < 0 || v.Type == gjson.True || v.Type == gjson.False {
		return append(dst, v.Raw...)
	}
	out, err := jsonplus.AppendJSON(dst, jsonplus.TypeJSON, []byte(v.Raw))
	if err != nil {
		return append(dst, "null"...)
	}
	return out
}

// appendJSON appends a stored value, from memory where it was shown before. What cannot be read is null.
func (s *Snapshots) appendJSON(dst []byte, typ string, data []byte) []byte {
	out, err := s.values.append(dst, typ, data)
	if err != nil {
		return s.notShown(dst, typ, len(data), err)
	}
	return out
}

// appendList appends a stored list that was given by item.
func (s *Snapshots) appendList(dst []byte, items [][]byte) []byte {
	out, err := s.values.appendList(dst, items)
	if err != nil {
		return s.notShown(dst, jsonplus.TypeMsgpack, len(items), err)
	}
	return out
}

func (s *Snapshots) notShown(dst []byte, typ string, size int, err error) []byte {
	if s.Log != nil {
		s.Log.Warn("a stored value cannot be shown", "type", typ, "size", size, "error", err)
	}
	return append(dst, "null"...)
}

func (s *Snapshots) toJSON(typ string, data []byte) json.RawMessage {
	return s.appendJSON(nil, typ, data)
}
