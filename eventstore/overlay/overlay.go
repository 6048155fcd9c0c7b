package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// Overlay puts transcripts into values. It is safe for concurrent use.
type Overlay struct {
	events eventstore.Reader
	config Config
	memory *memory
}

// New returns an Overlay of recorded transcripts.
func New(events eventstore.Reader, c Config) *Overlay {
	return &Overlay{events: events, config: c, memory: newMemory(DefaultCacheBytes)}
}

// Forget drops a deleted thread from memory: a new one with the same id may begin with the same seqs.
func (o *Overlay) Forget(t id.Thread) {
	if o != nil {
		o.memory.forget(t)
	}
}

// Reading shows checkpoints of one thread. Each message is read once for all of them. Call Done at the end. It is not safe for
// concurrent use.
type Reading struct {
	o        *Overlay
	look     Look
	thread   id.Thread
	contents *contents
	run      id.Run                  // whose stream is shown; "" none
	plain    []byte                  // last checked values that had nothing odd
	remember int                     // size up to which plain is kept, if it is above plainBytes
	ahead    *eventstore.Transcripts // read by ReadAhead; nil: none

	used    int64 // bytes of values that the answer has so far
	entries int   // entries counted before the limit was reached
	spent   bool  // an entry exceeded the limit: it and all later ones show the graph's messages
}

// Read begins a Reading of a thread.
func (o *Overlay) Read(t id.Thread, l Look) *Reading {
	return &Reading{o: o, look: l, thread: t, contents: o.memory.of(t)}
}

// Streams declares that the values are from the stream of a run: its own partial answers are left out, as they were while it streamed them.
// It only affects live looks.
func (r *Reading) Streams(run id.Run) {
	if r.look.Live {
		r.run = run
	}
}

// ReadAhead reads the transcripts of checkpoints that will be shown next, at once.
func (r *Reading) ReadAhead(ctx context.Context, checkpoints []id.Checkpoint) (err error) {
	if !r.look.On || len(checkpoints) < 2 {
		return nil
	}
	if r.ahead, err = r.o.events.Transcripts(ctx, r.thread, checkpoints); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return nil
}

// Done ends a Reading.
func (r *Reading) Done() { r.o.memory.settle(r.thread, r.contents) }

// Snapshot inserts the transcript of a snapshot's checkpoint into its values, if that is at the root. live: the snapshot is a head
// read without an id, whose values may contain writes of finished tasks. The caller owns the snapshot.
func (r *Reading) Snapshot(ctx context.Context, s *checkpointer.Snapshot, live bool) error {
	if !r.look.On || s.NS != "" || s.ID == "" {
		return nil
	}
	removes := removedByTasks(s)
	values, err := r.Values(ctx, s.ID, s.Values, &Ahead{
		Grown: live && slices.ContainsFunc(s.Tasks, func(t checkpointer.Task) bool { return t.Result != nil }),
		// Messages that no task removed were removed by the update of a command.
		ByClient: func(mid string) bool { return !removes[mid] && !removes[removeAll] },
	})
	if err == nil {
		s.Values = values
	}
	return err
}

// Ahead describes values that may be ahead of the checkpoint whose transcript is shown with them.
type Ahead struct {
	// Grown folds values even if nothing was condensed before. Otherwise such values pass unchanged and unread.
	Grown bool
	// ByClient reports whether a client removed the message, or with "__remove_all__" all of them. nil: it did not.
	ByClient func(mid string) bool
	// Deleted are condensed messages that the client deleted with the input of the run.
	Deleted []string
	Run     id.Run // whose values they are; "" when unknown
}

// RecordView is the Ahead of a checkpoint's values when nothing more is known: the update of a command may have changed them.
var RecordView = &Ahead{ByClient: func(string) bool { return true }}

// Values inserts the transcript of a root checkpoint into values. ahead nil: they are exactly those of the checkpoint. If nothing was
// condensed or recorded, they are returned unchanged.
func (r *Reading) Values(ctx context.Context, at id.Checkpoint, values json.RawMessage, ahead *Ahead) (json.RawMessage, error) {
	if !r.look.On {
		return values, nil
	}
	tr, err := r.transcript(ctx, at)
	if at == "" && ahead != nil && ahead.Grown {
		tr = &eventstore.Transcript{} // they are the first of their thread
	}
	if err != nil || tr == nil {
		return values, err
	}
	grown := ahead != nil && ahead.Grown
	if !grown && r.showsAll(tr, values) {
		return values, nil
	}
	bounded := r.look.MaxBytes > 0 && condensed(tr)
	if bounded && r.spent {
		return values, nil
	}
	start, end, ok := jsonscan.Member(values, r.look.Key)
	if !ok {
		return values, nil // an interrupt, or a graph with its messages in another channel
	}
	if r.look.Recent && !grown && condensed(tr) {
		out, ok, err := r.recent(ctx, tr, values, start, end)
		if ok || err != nil {
			return out, err
		}
	}
	p, err := r.point(ctx, tr)
	if err != nil {
		return nil, err
	}
	shown, ok, err := r.shown(p, values, values[start:end], ahead)
	if err != nil || !ok {
		return values, err
	}
	out := into(shown, values, start, end, r.look.Markers)
	if r.spent = bounded && r.used+int64(len(out)) > r.look.MaxBytes; r.spent {
		return values, nil
	}
	return out, nil
}

// showsAll reports, without reading the transcript's entries, whether values have the whole conversation in a form that clients read.
func (r *Reading) showsAll(tr *eventstore.Transcript, values json.RawMessage) bool {
	if !asListed(tr) {
		return false
	}
	lacks, legacy := r.odd(values)
	return !lacks && !legacy
}

// shown returns what is shown at a point in place of the messages of values; not ok: the values as they are.
func (r *Reading) shown(p *point, values, messages json.RawMessage, ahead *Ahead) (shown []*entry, ok bool, err error) {
	if r.run != "" {
		p.shown = slices.DeleteFunc(p.shown, func(e *entry) bool { return e.partial == r.run })
		if ahead == nil && same(p.shown, p.list) {
			return nil, false, nil
		}
	}
	if ahead != nil && !lost(p.shown, messages) {
		items, ok := jsonscan.Elements(messages)
		if !ok {
			return nil, false, nil // no messages
		}
		if p, ok, err = p.fold(values, items, ahead); err != nil || !ok || same(p.shown, p.list) {
			return nil, false, err
		}
	}
	if r.look.Recent && len(p.shown) > len(p.list) && slices.ContainsFunc(p.shown, isMarkerEntry) {
		return recentOf(p.shown, isMarkerEntry), true, nil
	}
	return p.shown, true, nil
}

// AsStored reports whether the messages of a root checkpoint, read as they are stored, are those that Values shows, except for Damaged ones. One that cannot be
// read is not.
func (r *Reading) AsStored(ctx context.Context, at id.Checkpoint) (bool, error) {
	if !r.look.On {
		return true, nil
	}
	tr, err := r.transcript(ctx, at)
	return tr == nil || asListed(tr), err
}

// Damaged reports whether a message, as stored, may have been damaged by an old writer: then Values shows what it said.
func Damaged(message json.RawMessage) bool { return bytes.Contains(message, legacyMark) }

// point returns the point of a conversation that a transcript describes.
func (r *Reading) point(ctx context.Context, tr *eventstore.Transcript) (*point, error) {
	lists, err := r.contents.get(ctx, r.o.events, r.thread, tr.Entries, tr.List, tr.Anonymous)
	if err != nil {
		return nil, err
	}
	p := &point{shown: lists[0], list: lists[1], run: tr.Run, source: tr.Source, texts: tr.Texts}
	if len(lists[2]) > 0 {
		p.anonymous = make(map[string]struct{}, len(lists[2]))
		for _, e := range lists[2] {
			p.anonymous[e.id] = struct{}{}
		}
	}
	return p, nil
}

// asListed reports, without reading the entries, whether a transcript is shown as the list of its checkpoint, as same does for entries that
// were read. A summary is listed as a message and shown as a marker, also when it stands for no messages any more.
func asListed(tr *eventstore.Transcript) bool {
	return slices.Equal(tr.Entries, tr.List) && len(tr.Anonymous) == 0 && !slices.ContainsFunc(tr.Entries, isSummary)
}

// Remember sets the size up to which values are kept to compare the next ones with, which is faster than searching all of them; 0: the default.
func (r *Reading) Remember(bytes int) {
	if r.remember = bytes; len(r.plain) > max(plainBytes, bytes) {
		r.plain = nil
	}
}

// plainBytes is the size up to which checked values are kept to compare the next ones with. Larger ones are searched again: a reading lasts as
// long as a client is slow.
const plainBytes = 1 << 20

// odd reports whether values may have a null in a list of messages, and whether they may have a message damaged by an old writer.
// Mostly there is neither. Adjacent entries of a history share most of their bytes, which are checked once.
func (r *Reading) odd(values []byte) (lacks, legacy bool) {
	// The text may span the position at which they begin to differ.
	rest := values[max(0, commonPrefix(r.plain, values)-len(legacyMark)):]
	lacks, legacy = mayLack(rest), bytes.Contains(rest, legacyMark)
	if !lacks && !legacy && len(values) <= max(plainBytes, r.remember) {
		r.plain = values
	}
	return lacks, legacy
}

// commonPrefix returns the length of the common prefix of a and b.
func commonPrefix(a, b []byte) int {
	const step = 256 // bytes compared at once
	n, i := min(len(a), len(b)), 0
	for i+step <= n && bytes.Equal(a[i:i+step], b[i:i+step]) {
		i += step
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// transcript returns the transcript of a checkpoint; nil when none was recorded, or there is no checkpoint.
func (r *Reading) transcript(ctx context.Context, at id.Checkpoint) (*eventstore.Transcript, error) {
	if at == "" {
		return nil, nil
	}
	var tr *eventstore.Transcript
	var err error
	if r.ahead.Has(at) {
		tr, err = r.ahead.At(at)
	} else {
		tr, err = eventstore.TranscriptAt(ctx, r.o.events, r.thread, at)
	}
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	if tr != nil {
		r.contents = r.o.memory.ofLog(r.thread, tr.Log, r.contents)
	}
	return tr, nil
}

// into returns values with values[start:end] replaced by the messages of a transcript.
func into(shown []*entry, values []byte, start, end int, form Markers) json.RawMessage {
	size := len(values) - (end - start) + 2
	for _, e := range shown {
		size += 1 + len(e.text)
		if e.marker != nil {
			size += len(e.marker.as(form))
		}
	}
	out := append(append(make([]byte, 0, size), values[:start]...), '[')
	var waits attached
	for n, e := range shown {
		text := e.text
		if e.marker != nil {
			if form == AttachedMarkers {
				waits.add(e.marker)
			}
			if text = e.marker.as(form); text == nil {
				continue
			}
		}
		if n > 0 && out[len(out)-1] != '[' {
			out = append(out, ',')
		}
		if waits.some {
			out, waits = waits.appendTo(out, text), attached{}
		} else {
			out = append(out, text...)
		}
	}
	return append(append(out, ']'), values[end:]...)
}
