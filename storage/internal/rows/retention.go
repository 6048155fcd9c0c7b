package rows

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/thread"
)

// ttl is how long a thread is kept, as it stands in its row. Earlier versions kept there what the
// client had sent.
type ttl struct {
	Strategy thread.Strategy `json:"strategy,omitempty"`
	Minutes  *float64        `json:"ttl,omitempty"`
	Default  bool            `json:"default,omitempty"`
}

// EncodeTTL returns the column value of a ttl; nil for none.
func EncodeTTL(t *thread.TTL) []byte {
	if t == nil {
		return nil
	}
	minutes := t.After.Minutes()
	data, err := json.Marshal(ttl{t.Strategy, &minutes, t.Default})
	if err != nil {
		panic(err) // a finite number and text
	}
	return data
}

// longest bounds what earlier versions did not.
const longest = 100 * 365 * 24 * time.Hour

// DecodeTTL is the inverse of EncodeTTL. A value without a time is nil.
func DecodeTTL(data []byte) *thread.TTL {
	var t ttl
	if len(data) == 0 || json.Unmarshal(data, &t) != nil || t.Minutes == nil {
		return nil
	}
	if t.Strategy == "" {
		t.Strategy = thread.Delete
	}
	after := longest
	if *t.Minutes < longest.Minutes() {
		after = max(0, time.Duration(*t.Minutes*float64(time.Minute)))
	}
	return &thread.TTL{Strategy: t.Strategy, After: after, Default: t.Default}
}

// Expiry is when the time of a thread is up, in microseconds; nil: never.
func Expiry(t *thread.Thread) any {
	if at, ok := t.ExpiresAt(); ok {
		return at.UnixMicro()
	}
	return nil
}

// Rearms reports whether a change of a thread's row changes when its time is up.
func Rearms(was, is *thread.Thread) bool {
	if was.TTL == nil && is.TTL == nil {
		return false
	}
	return was.TTL == nil || is.TTL == nil || *was.TTL != *is.TTL || was.UpdatedAt.UnixMicro() != is.UpdatedAt.UnixMicro()
}

// PruneRow is what pruning must know of a checkpoint.
type PruneRow struct {
	NS         string
	ID, Parent id.Checkpoint
	Metadata   []byte
	Versions   []ChannelVersion
}

// Prunable chooses the checkpoints of a thread that go when the newest of each namespace is kept,
// newest first. Rows are in order of namespaces, newest first in each.
//
// The value of a delta channel is folded from its writes since its last snapshot, in the
// ancestors. Of a namespace that has such channels the ancestors of the newest stay too, back to
// the first that holds a value of each: so whatever is left can be read. whole reports whether a
// checkpoint does, of these channels.
func Prunable(t id.Thread, list []PruneRow, whole func(ns string, c id.Checkpoint, channels []string) (bool, error)) ([]checkpointer.Key, error) {
	var drop []checkpointer.Key
	for len(list) > 0 {
		ns := list[0].NS
		end := slices.IndexFunc(list, func(r PruneRow) bool { return r.NS != ns })
		if end < 0 {
			end = len(list)
		}
		keep, err := kept(list[:end], whole)
		if err != nil {
			return nil, err
		}
		for _, r := range list[:end] {
			if !keep[r.ID] {
				drop = append(drop, checkpointer.Key{Thread: t, NS: ns, ID: r.ID})
			}
		}
		list = list[end:]
	}
	return drop, nil
}

// kept are the checkpoints of one namespace that stay.
func kept(list []PruneRow, whole func(string, id.Checkpoint, []string) (bool, error)) (map[id.Checkpoint]bool, error) {
	var channels []string
	parents := make(map[id.Checkpoint]id.Checkpoint, len(list))
	for _, r := range list {
		names, err := deltaChannels(r.Metadata)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !slices.Contains(channels, name) {
				channels = append(channels, name)
			}
		}
		parents[r.ID] = r.Parent
	}
	head := list[0]
	keep := map[id.Checkpoint]bool{head.ID: true}
	if channels == nil {
		return keep, nil
	}
	slices.Sort(channels)
	for at := head.ID; ; {
		done, err := whole(head.NS, at, channels)
		if err != nil {
			return nil, fmt.Errorf("checkpoint %s: %w", at, err)
		}
		if at = parents[at]; done || at == "" {
			return keep, nil
		}
		if _, there := parents[at]; !there || keep[at] {
			return keep, nil
		}
		keep[at] = true
	}
}

// What one transaction adds to a copy of a thread: others wait for it.
const (
	CopyRows  = 500
	CopyBytes = 1 << 20
)
