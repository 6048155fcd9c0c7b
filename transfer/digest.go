package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
	"understudy/store"
)

type sum [16]byte

// sums are the digests of a thread's parts. They are equal when the same graph reads the same from
// both: differences in form between databases (order of keys, place of a small value, null as a
// row or inline) do not count.
type sums struct {
	checkpoints map[place]sum
	values      map[valueKey]sum
	writes      map[writeKey]sum
	// withoutRun leaves the run of each checkpoint out: the source does not name it (RunDeriver).
	withoutRun bool
}

type place struct {
	ns string
	id id.Checkpoint
}

type valueKey struct{ ns, channel, version string }

type writeKey struct {
	place
	task  string
	index int
}

func newSums() *sums {
	return &sums{checkpoints: map[place]sum{}, values: map[valueKey]sum{}, writes: map[writeKey]sum{}}
}

// add adds a step. Values already seen are skipped.
func (s *sums) add(p *Step) error {
	at := place{p.NS, p.ID}
	data, inline, versions, err := splitData(p.Data)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", p.ID, err)
	}
	metadata := p.Metadata
	if len(metadata) == 0 {
		metadata = emptyObject
	}
	if s.withoutRun {
		o := jsonobj.Of(metadata)
		o.Delete("run_id")
		metadata = o.JSON()
	}
	s.checkpoints[at] = digest([]byte(p.NS), []byte(p.ID), []byte(p.Parent), data, canonical(metadata))
	held := map[string]bool{}
	for i := range p.Blobs {
		b := &p.Blobs[i]
		held[b.Channel] = true
		key := valueKey{p.NS, b.Channel, b.Version}
		if _, ok := s.values[key]; ok || b.Type == "empty" {
			continue
		}
		value, err := packed(b.Type, b.Bytes())
		if err != nil {
			return fmt.Errorf("checkpoint %s: channel %s: %w", p.ID, b.Channel, err)
		}
		s.values[key] = digest(value)
	}
	for channel, text := range inline {
		key := valueKey{p.NS, channel, versions[channel]}
		if _, ok := s.values[key]; ok || held[channel] {
			continue
		}
		value, err := jsonplus.AppendValue(nil, canonical(text))
		if err != nil {
			return fmt.Errorf("checkpoint %s: channel %s: %w", p.ID, channel, err)
		}
		s.values[key] = digest(value)
	}
	for _, w := range p.Writes {
		value, err := packed(w.Type, w.Data)
		if err != nil {
			return fmt.Errorf("write of task %s on checkpoint %s: %w", w.TaskID, p.ID, err)
		}
		s.writes[writeKey{at, w.TaskID, w.Index}] = digest([]byte(w.Channel), value, []byte(w.Path))
	}
	return nil
}

// readBack compares what was written with s.
func (s *sums) readBack(ctx context.Context, h History, links []Link) error {
	got := newSums()
	got.withoutRun = s.withoutRun
	if err := h.Read(ctx, links, func(p *Step) error { return got.add(p) }); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return s.compare(got)
}

// compare returns the parts of s that are missing or different in other. If other has continued on
// its own, writes on its checkpoints may have changed.
func (s *sums) compare(other *sums) error {
	var wrong []string
	for k, v := range s.checkpoints {
		if got, ok := other.checkpoints[k]; !ok {
			wrong = append(wrong, "checkpoint "+string(k.id)+" is missing")
		} else if got != v {
			wrong = append(wrong, "checkpoint "+string(k.id)+" differs")
		}
	}
	for k, v := range s.values {
		if got, ok := other.values[k]; !ok {
			wrong = append(wrong, "the value of channel "+k.channel+" at version "+k.version+" is missing")
		} else if got != v {
			wrong = append(wrong, "the value of channel "+k.channel+" at version "+k.version+" differs")
		}
	}
	if len(other.checkpoints) == len(s.checkpoints) {
		for k, v := range s.writes {
			if got, ok := other.writes[k]; !ok {
				wrong = append(wrong, fmt.Sprintf("write %d of task %s on checkpoint %s is missing", k.index, k.task, k.id))
			} else if got != v {
				wrong = append(wrong, fmt.Sprintf("write %d of task %s on checkpoint %s differs", k.index, k.task, k.id))
			}
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	const shown = 3
	text := strings.Join(wrong[:min(shown, len(wrong))], "; ")
	if n := len(wrong) - shown; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return errors.New(text)
}

// total returns one digest of all parts.
func (s *sums) total() sum {
	parts := make([]string, 0, len(s.checkpoints)+len(s.values)+len(s.writes))
	for k, v := range s.checkpoints {
		parts = append(parts, "c"+k.ns+"\x00"+string(k.id)+"\x00"+string(v[:]))
	}
	for k, v := range s.values {
		parts = append(parts, "v"+k.ns+"\x00"+k.channel+"\x00"+k.version+"\x00"+string(v[:]))
	}
	for k, v := range s.writes {
		parts = append(parts, fmt.Sprintf("w%s\x00%s\x00%s\x00%d\x00%s", k.ns, k.id, k.task, k.index, v[:]))
	}
	slices.Sort(parts)
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return sum(h.Sum(nil)[:16])
}

func digest(parts ...[]byte) sum {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return sum(h.Sum(nil)[:16])
}

func digestItem(i *store.Item) sum {
	return digest([]byte(strings.Join(i.Namespace, "\x1f")), []byte(i.Key), canonical(i.Value))
}

// splitData returns a checkpoint without its values, in canonical form, and its inline values and
// versions by channel.
func splitData(data json.RawMessage) (rest []byte, inline map[string]json.RawMessage, versions map[string]string, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, nil, nil, err
	}
	if raw := fields["channel_values"]; raw != nil {
		if err := json.Unmarshal(raw, &inline); err != nil {
			return nil, nil, nil, fmt.Errorf("channel_values: %w", err)
		}
	}
	versions = map[string]string{}
	gjson.GetBytes(data, "channel_versions").ForEach(func(k, v gjson.Result) bool {
		versions[k.String()] = v.String()
		return true
	})
	delete(fields, "channel_values")
	text, err := json.Marshal(fields)
	return canonical(text), inline, versions, err
}

// packed returns a stored value of any form as msgpack. Values that cannot be read are returned
// unchanged.
func packed(typ string, data []byte) ([]byte, error) {
	out, err := jsonplus.Pack(typ, data)
	if errors.Is(err, jsonplus.ErrType) || errors.Is(err, jsonplus.ErrPickle) {
		return append([]byte(typ+"\x00"), data...), nil
	}
	return out, err
}

// canonical returns JSON with sorted keys and one spelling of each number.
func canonical(text []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	out, err := json.Marshal(plainNumbers(v))
	if err != nil {
		return text
	}
	return out
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k, value := range v {
			if text := plainText(k); text != k {
				delete(v, k)
				k = text
			}
			v[k] = plainNumbers(value)
		}
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return v
		}
		f, err := v.Float64()
		switch {
		case err != nil:
			return v
		case f == math.Trunc(f) && math.Abs(f) < 1<<53: // jsonb does not distinguish 1 and 1.0e0
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	case string:
		return plainText(v)
	}
	return v
}

// plainText removes NUL, which Postgres cannot store in JSON, and its replacements.
func plainText(s string) string { return noNUL.Replace(s) }

var noNUL = strings.NewReplacer("\x00", "", "\uFFFD", "")
