// Package rows is what storages of any kind share: how the small arguments of a run, the labels of
// a namespace and the versions of a checkpoint stand in rows, and how pages are counted. It knows
// no database.
package rows

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// EncodeKwargs returns the small arguments of a run in one piece of JSON, and a digest of all
// arguments, which shows whether they changed.
func EncodeKwargs(k *run.Arguments) (small, digest []byte, err error) {
	if small, err = json.Marshal(k); err != nil {
		return nil, nil, fmt.Errorf("arguments: %w", err)
	}
	h := sha256.New()
	for _, part := range [][]byte{k.Input, k.Command, k.Config, k.Context, small} {
		length := int64(len(part))
		if part == nil {
			length = -1
		}
		_ = binary.Write(h, binary.BigEndian, length) // a hash does not fail
		_, _ = h.Write(part)
	}
	return small, h.Sum(nil)[:16], nil
}

// DecodeKwargs puts the small arguments of a run where they belong. Input, Command, Config and
// Context stay.
func DecodeKwargs(small []byte, k *run.Arguments) error {
	if err := json.Unmarshal(small, k); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// Page skips and counts rows that were found. Its zero value wants all.
type Page struct {
	Limit, Offset int // Limit <= 0: all
	seen          int
}

// Skip passes over a row before the page without looking at it; false when the page has begun.
func (p *Page) Skip() bool {
	if p.seen >= p.Offset {
		return false
	}
	p.seen++
	return true
}

// Take reports whether the next row belongs to the page, and whether it is the last one wanted.
func (p *Page) Take() (in, last bool) {
	p.seen++
	return p.seen > p.Offset, p.Limit > 0 && p.seen >= p.Offset+p.Limit
}

// Namespaces of items are kept as their labels joined by Separator. It sorts before every
// printable character, so that they sort as lists do.
const (
	Separator = "\x1f"
	// Behind, put after a namespace, is above all namespaces below it.
	Behind = "\x20"
	// LastText is above every namespace.
	LastText = "\U0010FFFF"
)

// JoinNamespace returns the text of a namespace; fault.Invalid if a label cannot be stored.
func JoinNamespace(labels []string) (string, error) {
	for _, l := range labels {
		if strings.Contains(l, Separator) {
			return "", fault.New(fault.Invalid, "a namespace label contains a control character")
		}
	}
	return strings.Join(labels, Separator), nil
}

// SplitNamespace is the inverse of JoinNamespace.
func SplitNamespace(text string) []string { return strings.Split(text, Separator) }

// Within reports whether the text of a namespace is the prefix or below it.
func Within(namespace, prefix string) bool {
	return prefix == "" || namespace == prefix || strings.HasPrefix(namespace, prefix+Separator)
}

// MatchLabels reports whether labels begin with a pattern, in which "*" stands for any one label.
func MatchLabels(labels, pattern []string) bool {
	if len(labels) < len(pattern) {
		return false
	}
	for i, p := range pattern {
		if p != "*" && p != labels[i] {
			return false
		}
	}
	return true
}

// ChannelVersion names a blob within a namespace.
type ChannelVersion struct{ Channel, Version string }

// ChannelVersions are those of a checkpoint, in order of channels. Versions may be text or
// numbers; both are text in the tables.
func ChannelVersions(data []byte) ([]ChannelVersion, error) {
	var c struct {
		Versions map[string]json.RawMessage `json:"channel_versions"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("channel_versions: %w", err)
	}
	out := make([]ChannelVersion, 0, len(c.Versions))
	for channel, raw := range c.Versions {
		version := string(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &version); err != nil {
				return nil, fmt.Errorf("channel_versions: %w", err)
			}
		}
		out = append(out, ChannelVersion{channel, version})
	}
	slices.SortFunc(out, func(a, b ChannelVersion) int { return strings.Compare(a.Channel, b.Channel) })
	return out, nil
}

// ErrDelta: a thread cannot be pruned.
var ErrDelta = fault.New(fault.NotSupported, "the thread was written by LangGraph.js with a delta channel, which is read from older checkpoints: they cannot be pruned")

// deltaChannels are those that the metadata of a checkpoint counts: they had no snapshot since.
func deltaChannels(metadata []byte) ([]string, error) {
	if !bytes.Contains(metadata, []byte("delta")) {
		return nil, nil
	}
	var m struct {
		Counters  map[string]json.RawMessage `json:"counters_since_delta_snapshot"`
		Versioned json.RawMessage            `json:"delta_writes_versioned"`
	}
	if err := json.Unmarshal(metadata, &m); err != nil || m.Versioned != nil { // its writes are found by versions, not by ancestors
		return nil, ErrDelta
	}
	return slices.Collect(maps.Keys(m.Counters)), nil
}

// WithThread puts another id in place of the thread_id at the top level of an object, and leaves
// every other byte. nil when there is none.
func WithThread(object []byte, t id.Thread) []byte {
	dec := json.NewDecoder(bytes.NewReader(object))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil
		}
		if key != "thread_id" {
			continue
		}
		text, err := json.Marshal(string(t))
		if err != nil {
			return nil
		}
		end := int(dec.InputOffset())
		return slices.Concat(object[:end-len(value)], text, object[end:])
	}
	return nil
}
