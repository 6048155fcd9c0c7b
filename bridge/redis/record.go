package redis

import (
	"errors"
	"strconv"
	"strings"

	"understudy/bridge"
	"understudy/id"
)

// Flags of a record in a stream. The two lowest bits are its kind.
const (
	flagKept = 4 << iota
	flagEphemeral
	flagAhead
	flagSummarizer
)

func flagsOf(r *bridge.Record) int {
	f := int(r.Kind)
	for _, b := range []struct {
		on   bool
		flag int
	}{{r.Kept, flagKept}, {r.Ephemeral, flagEphemeral}, {r.Ahead, flagAhead}, {r.Summarizer, flagSummarizer}} {
		if b.on {
			f |= b.flag
		}
	}
	return f
}

// overhead is the memory of a record in addition to its text.
const overhead = 160

func sizeOf(r *bridge.Record) int64 { return int64(len(r.Event)+len(r.Data)+len(r.Run)) + overhead }

// entry is a record in a stream.
type entry struct {
	*bridge.Record
	count int64 // records ever added to the stream, this one included
	gap   bool  // records before it were dropped; it holds none
}

var errEntry = errors.New("stream entry was not written by this bridge")

func decode(name string, fields map[string]any) (e entry, err error) {
	text := func(key string) string { s, _ := fields[key].(string); return s }
	if e.count, err = strconv.ParseInt(text("c"), 10, 64); err != nil || e.count < 1 {
		return e, errEntry
	}
	offset, err := parseOffset(name)
	if err != nil {
		return e, err
	}
	if text("g") != "" {
		e.gap = true
		e.Record = &bridge.Record{Offset: offset}
		return e, nil
	}
	flags, err := strconv.ParseUint(text("f"), 10, 8)
	if err != nil || bridge.Kind(flags&3) > bridge.Terminal {
		return e, errEntry
	}
	e.Record = &bridge.Record{
		Offset: offset, Run: id.Run(text("r")), Kind: bridge.Kind(flags & 3), Event: text("e"), Data: []byte(text("d")), Checkpoint: id.Checkpoint(text("k")),
		Attempt: int(number(text("a"))), Index: number(text("i")),
		Kept: flags&flagKept != 0, Ephemeral: flags&flagEphemeral != 0, Ahead: flags&flagAhead != 0, Summarizer: flags&flagSummarizer != 0,
	}
	return e, nil
}

// number reads what may be missing: 0.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// parseOffset reads "<ms>-<n>"; "" is the offset below all.
func parseOffset(s string) (o bridge.Offset, err error) {
	if s == "" {
		return o, nil
	}
	ms, n, ok := strings.Cut(s, "-")
	if !ok {
		return o, errEntry
	}
	if o.MS, err = strconv.ParseInt(ms, 10, 64); err != nil {
		return o, errEntry
	}
	if o.N, err = strconv.ParseInt(n, 10, 64); err != nil || o.MS < 0 || o.N < 0 {
		return bridge.Offset{}, errEntry
	}
	return o, nil
}
