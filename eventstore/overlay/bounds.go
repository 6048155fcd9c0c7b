package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// recentMessages is how many of the last messages a list of threads shows.
const recentMessages = 20

// recentOf returns the first message and the last recentMessages of a transcript, each with the markers before it, and the markers at the end.
// A transcript without a gap between them is returned as it is.
func recentOf[E any](all []E, isMarker func(E) bool) []E {
	first := slices.IndexFunc(all, func(e E) bool { return !isMarker(e) }) + 1
	from := len(all)
	for n := 0; from > first && (n < recentMessages || isMarker(all[from-1])); from-- {
		if !isMarker(all[from-1]) {
			n++
		}
	}
	if from == first {
		return all
	}
	return slices.Concat(all[:first], all[from:])
}

func isMarkerEntry(e *entry) bool { return e.marker != nil }

// condensed reports whether a transcript has messages that its checkpoint has condensed.
func condensed(tr *eventstore.Transcript) bool {
	return len(tr.Entries) > len(tr.List) && slices.ContainsFunc(tr.Entries, isSummary)
}

func isSummary(e eventstore.Entry) bool { return e.Summary }

// recent is Values for a list of threads, without the messages that it does not show. ok is false when the values differ from those that
// the transcript was recorded with: then the whole transcript is needed to show them.
func (r *Reading) recent(ctx context.Context, tr *eventstore.Transcript, values json.RawMessage, start, end int) (out json.RawMessage, ok bool, err error) {
	items, ok := jsonscan.Elements(values[start:end])
	if r.run != "" || !ok || len(items) != len(tr.List) {
		return nil, false, nil
	}
	lists, err := r.contents.get(ctx, r.o.events, r.thread, recentOf(tr.Entries, isSummary), tr.List)
	if err != nil {
		return nil, false, err
	}
	for i, item := range named(items, lists[1]) {
		if !lists[1][i].stands(item) {
			return nil, false, nil
		}
	}
	return into(lists[0], values, start, end, r.look.Markers), true, nil
}

// Count adds the next entry of an answer, as shown, to the bytes limited by Look.MaxBytes.
func (r *Reading) Count(values json.RawMessage) {
	if !r.spent && !r.Exhausted() {
		r.entries++
	}
	r.used += int64(len(values))
}

// Spent reports whether an entry exceeded the limit of the answer. entries is the number of first entries that are shown as without a limit;
// later ones with condensed messages show the graph's messages.
func (r *Reading) Spent() (entries int, spent bool) { return r.entries, r.spent }

// Bounded reports whether Look.MaxBytes bounds the answer.
func (r *Reading) Bounded() bool { return r.look.MaxBytes > 0 }

// Exhausted reports whether no further entry with condensed messages fits, even if none has been refused yet.
func (r *Reading) Exhausted() bool { return r.look.MaxBytes > 0 && r.used >= r.look.MaxBytes }

// Condensed reports whether an exhausted limit would change how any of these root checkpoints is shown.
func (r *Reading) Condensed(ctx context.Context, checkpoints []id.Checkpoint) (bool, error) {
	if !r.look.On || len(checkpoints) == 0 {
		return false, nil
	}
	read, err := r.o.events.Transcripts(ctx, r.thread, checkpoints)
	if err != nil {
		return false, fmt.Errorf("overlay: %w", err)
	}
	for _, at := range checkpoints {
		tr, err := read.At(at)
		if err != nil {
			return false, fmt.Errorf("overlay: %w", err)
		}
		if tr != nil && condensed(tr) {
			return true, nil
		}
	}
	return false, nil
}
