package langgraph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
	"understudy/transfer"
)

// tasksChannel holds the sends that wait for the next step.
const tasksChannel = "__pregel_tasks"

// firstInline is the format from which on sends are a channel. Older formats keep them in the
// checkpoint or on its parent.
const firstInline = 4

// paddedVersion converts a numeric version to text of the current form. A thread must not mix
// both, because LangGraph compares versions and text does not compare with numbers.
func paddedVersion(text string) string {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return text
	}
	if len(text) < 32 {
		text = strings.Repeat("0", 32-len(text)) + text
	}
	return text + ".0000000000000000"
}

// numbersInVersions reports whether a checkpoint has numeric versions.
func numbersInVersions(data []byte) bool {
	found := false
	gjson.GetBytes(data, "channel_versions").ForEach(func(_, v gjson.Result) bool {
		found = v.Type == gjson.Number
		return !found
	})
	return found
}

// padVersions converts the versions of a checkpoint to text. Floats, which no saver writes, stay.
func padVersions(data json.RawMessage) json.RawMessage {
	o := jsonobj.Of(data)
	pad := func(raw json.RawMessage) json.RawMessage {
		versions := jsonobj.Of(raw)
		for _, k := range versions.Keys() {
			if text := string(versions.Get(k)); len(text) > 0 && text[0] != '"' {
				versions.SetText(k, paddedVersion(text))
			}
		}
		return versions.JSON()
	}
	o.Set("channel_versions", pad(o.Get("channel_versions")))
	if raw := o.Get("versions_seen"); raw != nil {
		seen := jsonobj.Of(raw)
		for _, node := range seen.Keys() {
			seen.Set(node, pad(seen.Get(node)))
		}
		o.Set("versions_seen", seen.JSON())
	}
	return o.JSON()
}

// addSends adds sends that an old checkpoint stored elsewhere as a channel, as today's savers do
// on reading. sends are msgpack.
func addSends(step *transfer.Step, sends [][]byte) {
	o := jsonobj.Of(step.Data)
	o.Delete("pending_sends")
	if len(sends) > 0 {
		versions, highest := jsonobj.Of(o.Get("channel_versions")), ""
		for _, k := range versions.Keys() {
			highest = max(highest, versions.Text(k))
		}
		// A step that only sent did not raise the highest version, so its own ID distinguishes its
		// sends from those of another step.
		version := highest + "-" + string(step.ID)
		versions.SetText(tasksChannel, version)
		o.Set("channel_versions", versions.JSON())
		list := msgp.AppendArrayHeader(nil, uint32(len(sends)))
		step.Blobs = append(step.Blobs, checkpointer.Blob{Channel: tasksChannel, Version: version, Type: jsonplus.TypeMsgpack, Data: append(list, bytes.Join(sends, nil)...)})
	}
	step.Data = o.JSON()
}

// hasSends reports whether addSends has already changed the checkpoint, in an earlier move.
func hasSends(step *transfer.Step) bool {
	return strings.HasSuffix(gjson.GetBytes(step.Data, "channel_versions."+tasksChannel).String(), "-"+string(step.ID))
}

// versionOf returns the format of a checkpoint.
func versionOf(data []byte) int64 { return gjson.GetBytes(data, "v").Int() }

// cleanJSON converts JSON of older programs, with NaN or with envelopes of objects, to valid JSON.
func cleanJSON(text []byte) (json.RawMessage, error) {
	if len(text) == 0 || string(text) == "null" {
		return json.RawMessage("{}"), nil
	}
	if json.Valid(text) && !bytes.Contains(text, []byte(`"lc"`)) {
		return text, nil
	}
	return jsonplus.AppendJSON(nil, jsonplus.TypeJSON, text)
}

// inlineValue returns a value as JSON if the savers for Postgres keep such values inside the
// checkpoint.
func inlineValue(packed []byte) (json.RawMessage, bool) {
	if len(packed) == 0 {
		return nil, false
	}
	switch msgp.NextType(packed) {
	case msgp.NilType, msgp.BoolType, msgp.IntType, msgp.UintType:
	case msgp.StrType:
		if bytes.IndexByte(packed, 0) >= 0 {
			if s, _, err := msgp.ReadStringZC(packed); err != nil || bytes.IndexByte(s, 0) >= 0 {
				return nil, false
			}
		}
	case msgp.Float64Type, msgp.Float32Type:
		text, err := jsonplus.AppendJSON(nil, jsonplus.TypeMsgpack, packed)
		return text, err == nil && string(text) != "null" // NaN and infinities have no JSON
	default:
		return nil, false
	}
	text, err := jsonplus.AppendJSON(nil, jsonplus.TypeMsgpack, packed)
	return text, err == nil
}

// split separates a checkpoint in one piece of msgpack, as SQLite stores it, into its JSON and its
// values by channel.
func split(step *transfer.Step, whole []byte) error {
	n, rest, err := msgp.ReadMapHeaderBytes(whole)
	if err != nil {
		return fmt.Errorf("no mapping: %w", err)
	}
	o := &jsonobj.Object{}
	var values, sends [][]byte
	var names []string
	for range n {
		var key string
		if key, rest, err = msgp.ReadStringBytes(rest); err != nil {
			return fmt.Errorf("a key that is no text: %w", err)
		}
		after, err := msgp.Skip(rest)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		value := rest[:len(rest)-len(after)]
		rest = after
		switch key {
		case "channel_values":
			if names, values, err = entries(value); err != nil {
				return fmt.Errorf("channel_values: %w", err)
			}
		case "pending_sends":
			if sends, err = jsonplus.SplitArray(value); err != nil {
				return fmt.Errorf("pending_sends: %w", err)
			}
		default:
			text, err := jsonplus.AppendJSON(nil, jsonplus.TypeMsgpack, value)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			o.Set(key, text)
		}
	}
	step.Data = o.JSON()
	if numbersInVersions(step.Data) {
		step.Data = padVersions(step.Data)
	}
	o = jsonobj.Of(step.Data)
	versions := jsonobj.Of(o.Get("channel_versions"))
	inline := &jsonobj.Object{}
	for i, name := range names {
		text, ok := inlineValue(values[i])
		_, delta := jsonplus.DeltaSnapshot(values[i])
		version := versions.Text(name)
		if version == "" {
			// A value without a version could not be found. The lowest version triggers no task.
			version = paddedVersion("0")
			versions.SetText(name, version)
		}
		if ok {
			inline.Set(name, text)
			continue
		}
		if delta {
			inline.Set(name, json.RawMessage("true"))
		}
		step.Blobs = append(step.Blobs, checkpointer.Blob{Channel: name, Version: version, Type: jsonplus.TypeMsgpack, Data: values[i]})
	}
	o.Set("channel_values", inline.JSON())
	o.Set("channel_versions", versions.JSON())
	step.Data = o.JSON()
	if len(sends) > 0 && versionOf(step.Data) < firstInline {
		addSends(step, sends)
	}
	return nil
}

// entries returns the text keys of a msgpack mapping and their values, undecoded.
func entries(b []byte) (keys []string, values [][]byte, err error) {
	if len(b) > 0 && msgp.NextType(b) == msgp.NilType {
		return nil, nil, nil
	}
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		var key string
		if key, rest, err = msgp.ReadStringBytes(rest); err != nil {
			return nil, nil, err
		}
		after, err := msgp.Skip(rest)
		if err != nil {
			return nil, nil, err
		}
		keys, values = append(keys, key), append(values, rest[:len(rest)-len(after)])
		rest = after
	}
	return keys, values, nil
}

// join assembles a checkpoint in one piece; its blobs are all that its versions name.
func join(step *transfer.Step) ([]byte, error) {
	o := jsonobj.Of(step.Data)
	keys := o.Keys()
	out := msgp.AppendMapHeader(nil, uint32(len(keys)))
	var err error
	found := false
	for _, key := range keys {
		out = msgp.AppendString(out, key)
		if key == "channel_values" {
			found = true
			out, err = joinValues(out, o.Get(key), step.Blobs)
		} else {
			out, err = jsonplus.AppendValue(out, o.Get(key))
		}
		if err != nil {
			return nil, fmt.Errorf("checkpoint %s: %s: %w", step.ID, key, err)
		}
	}
	if !found {
		return nil, fmt.Errorf("checkpoint %s has no channel_values", step.ID)
	}
	return out, nil
}

// joinValues appends the mapping of channel values: inline JSON and blobs.
func joinValues(out []byte, inline json.RawMessage, blobs []checkpointer.Blob) ([]byte, error) {
	values, held := jsonobj.Of(inline), map[string]bool{}
	n, body := 0, []byte(nil)
	for i := range blobs {
		b := &blobs[i]
		if b.Type == "empty" || held[b.Channel] {
			continue
		}
		held[b.Channel] = true
		n++
		body = msgp.AppendString(body, b.Channel)
		switch b.Type {
		case jsonplus.TypeMsgpack:
			body = b.AppendTo(body)
		case jsonplus.TypeNull:
			body = msgp.AppendNil(body)
		case jsonplus.TypeBytes, jsonplus.TypeBytearray:
			body = msgp.AppendBytes(body, b.Bytes())
		case jsonplus.TypeJSON:
			packed, err := jsonplus.PackJSON(b.Bytes())
			if err != nil {
				return nil, fmt.Errorf("channel %s: %w", b.Channel, err)
			}
			body = append(body, packed...)
		default:
			return nil, fmt.Errorf("channel %s is stored as %s, which a checkpoint in SQLite cannot hold: export to Postgres instead", b.Channel, strconv.Quote(b.Type))
		}
	}
	var err error
	for _, name := range values.Keys() {
		if held[name] {
			continue
		}
		n++
		if body, err = jsonplus.AppendValue(msgp.AppendString(body, name), values.Get(name)); err != nil {
			return nil, fmt.Errorf("channel %s: %w", name, err)
		}
	}
	return append(msgp.AppendMapHeader(out, uint32(n)), body...), nil
}

// splitJSON is split for the older JSON form. Values stay in that form, which today's savers read.
func splitJSON(step *transfer.Step, whole []byte) error {
	if !json.Valid(whole) { // NaN is invalid JSON
		packed, err := jsonplus.PackJSON(whole)
		if err != nil {
			return err
		}
		return split(step, packed)
	}
	o, err := jsonobj.Parse(whole)
	if err != nil {
		return err
	}
	values := jsonobj.Of(o.Get("channel_values"))
	var sends [][]byte
	if raw := o.Get("pending_sends"); raw != nil {
		packed, err := jsonplus.PackJSON(raw)
		if err == nil {
			sends, err = jsonplus.SplitArray(packed)
		}
		if err != nil {
			return fmt.Errorf("pending_sends: %w", err)
		}
		o.Delete("pending_sends")
	}
	if step.Data = o.JSON(); numbersInVersions(step.Data) {
		step.Data = padVersions(step.Data)
		o = jsonobj.Of(step.Data)
	}
	versions, inline := jsonobj.Of(o.Get("channel_versions")), &jsonobj.Object{}
	for _, name := range values.Keys() {
		if versions.Text(name) == "" {
			versions.SetText(name, paddedVersion("0"))
		}
		if raw := values.Get(name); len(raw) > 0 && raw[0] != '{' && raw[0] != '[' && !bytes.Contains(raw, []byte(`\u0000`)) {
			inline.Set(name, raw)
		} else {
			step.Blobs = append(step.Blobs, checkpointer.Blob{Channel: name, Version: versions.Text(name), Type: jsonplus.TypeJSON, Data: raw})
		}
	}
	o.Set("channel_values", inline.JSON())
	o.Set("channel_versions", versions.JSON())
	if step.Data = o.JSON(); len(sends) > 0 && versionOf(step.Data) < firstInline {
		addSends(step, sends)
	}
	return nil
}
