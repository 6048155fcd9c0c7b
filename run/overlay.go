package run

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/singleflight"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/thread"
	"understudy/thread/overlay"
	"understudy/thread/partial"
)

// position is the root checkpoint that an execution has reached.
type position struct {
	mu sync.Mutex
	at id.Checkpoint // "": not known

	said    *partial.Tokens // learns which steps are saved; nil: it is not kept
	passed  func()          // called with each checkpoint
	storage *patient        // what it saves to, when that is shared; nil else
}

// away reports whether the storage could not be reached for so long that the execution gave up.
func (p *position) away() bool { return p.storage != nil && p.storage.away.Load() }

func (p *position) get() id.Checkpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

func (p *position) set(at id.Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = at
}

// positioned notes what was committed: the last root checkpoint, and that there is one.
type positioned struct {
	*thread.Saver[Tx]
	calls  *calls
	at     *position
	passed *atomic.Bool
	s      *Service
	span   trace.Span // of the attempt
}

func (p positioned) Save(ctx context.Context, saves ...graph.Save) error {
	ctx, saved := p.s.saving(ctx, p.span)
	puts := 0
	for _, sv := range saves {
		if sv.Put != nil {
			puts++
		}
	}
	_, made := p.calls.waiting()
	err := p.Saver.Save(ctx, saves...)
	saved(puts, err)
	if err != nil {
		return err
	}
	p.calls.drop(made)
	for _, sv := range saves {
		if sv.Put == nil {
			continue
		}
		p.passed.Store(true)
		p.at.passed()
		if sv.Put.NS == "" {
			p.at.set(sv.Put.ID)
			p.at.said.Saved(int(gjson.GetBytes(sv.Put.Metadata, "step").Int()))
		}
	}
	return nil
}

// base gives the position of an execution; before its first checkpoint that is where it starts from. "" on a new thread.
func (s *Service) base(ctx context.Context, r *Run, at *position) (id.Checkpoint, error) {
	if c := at.get(); c != "" {
		return c, nil
	}
	start := r.Kwargs.CheckpointID
	if start == "" || r.Kwargs.CheckpointNS != "" {
		head, err := s.Snapshots.Head(ctx, r.Thread)
		if err != nil {
			return "", fmt.Errorf("head of thread %s: %w", r.Thread, err)
		}
		start = head.ID
	}
	at.set(start)
	return start, nil
}

// clean takes out of what a run is called with what its client has from a transcript only, and gives which condensed messages it
// deletes. It happens when the run starts, not when it is made: only then it is known on which state. The row keeps what was sent.
func (s *Service) clean(ctx context.Context, r *Run, inv *graph.Invocation, at *position) (deleted []string, err error) {
	if s.Overlay == nil || inv.At.NS != "" || !overlay.MayEcho(inv.Input) && !overlay.MayEcho(inv.Command) {
		return nil, nil
	}
	var base id.Checkpoint
	if !r.Kwargs.Temporary { // else it has no thread that messages could have been condensed on
		if base, err = s.base(ctx, r, at); err != nil {
			return nil, err
		}
	}
	input, err := s.Overlay.Clean(ctx, r.Graph, r.Thread, base, inv.Input)
	if err != nil {
		return nil, fmt.Errorf("input of run %s: %w", r.ID, err)
	}
	command, err := s.Overlay.CleanCommand(ctx, r.Graph, r.Thread, base, inv.Command)
	if err != nil {
		return nil, fmt.Errorf("command of run %s: %w", r.ID, err)
	}
	inv.Input, inv.Command = input.JSON, command.JSON
	return append(input.Deleted, command.Deleted...), nil
}

// mark notes on a record what readers with the overlay need of it, and on the held one before it, if there is one. The record itself is
// to be held when held is true: the next event decides what it is.
func (s *Service) mark(ctx context.Context, r *Run, before, rec *bridge.Record, ev *graph.Event, at *position, summarizer *overlay.Summarizer) (held bool) {
	if s.Overlay == nil {
		return false
	}
	var err error
	base := func() (c id.Checkpoint) {
		if r.Kwargs.Temporary {
			return ""
		}
		c, err = s.base(ctx, r, at)
		return c
	}
	switch {
	case ev.Name == "updates" && ev.NS == "" && !r.Kwargs.Temporary && graph.MayCondense(ev.Data):
		if rec.Checkpoint = ev.Checkpoint; rec.Checkpoint == "" {
			rec.Checkpoint = base()
		}
		rec.Ahead = err == nil
	case ev.Name == "values" && ev.NS == "":
		if rec.Checkpoint = ev.Checkpoint; rec.Checkpoint == "" && !r.Kwargs.Temporary {
			rec.Checkpoint = base()
			rec.Ahead = err == nil
		}
	default:
		fate, cause := summarizer.Judge(ctx, ev.Name, ev.Data, base)
		rec.Summarizer, held = fate == overlay.Hidden || fate == overlay.HiddenBoth, fate == overlay.Held
		if before != nil {
			before.Summarizer = fate == overlay.HiddenBoth
		}
		if err == nil {
			err = cause
		}
	}
	if err != nil { // readers without the overlay get the record all the same
		s.log.WarnContext(ctx, "record has no overlay", "run_id", r.ID, "error", err)
	}
	return held
}

// reader gives the next records, as Follower.Next.
type reader func(context.Context) ([]*bridge.Record, error)

// always is a look that is known from the beginning.
func always(l overlay.Look) func(context.Context) (overlay.Look, error) {
	return func(context.Context) (overlay.Look, error) { return l, nil }
}

// overlaid gives records as a look has them. The look is asked for once, when something depends on it.
func (s *Service) overlaid(t id.Thread, lookOf func(context.Context) (overlay.Look, error), next reader) reader {
	if s.Overlay == nil {
		return next
	}
	var look *overlay.Look
	return func(ctx context.Context) ([]*bridge.Record, error) {
		for {
			records, err := next(ctx)
			if err != nil {
				return records, err
			}
			if !slices.ContainsFunc(records, func(r *bridge.Record) bool { return overlays(r) || r.Summarizer }) {
				return records, nil
			}
			if look == nil {
				l, err := lookOf(ctx)
				if err != nil {
					s.log.WarnContext(ctx, "records are shown without overlay", "thread_id", t, "error", err)
					return records, nil
				}
				look = &l
			}
			if !look.On {
				return records, nil
			}
			var out []*bridge.Record // nil while it would be the same
			for i, rec := range records {
				now := rec
				if overlays(rec) {
					now = s.shown(ctx, t, rec, *look)
				}
				if out == nil && (now != rec || rec.Summarizer) {
					out = append(make([]*bridge.Record, 0, len(records)), records[:i]...)
				}
				if out != nil && !rec.Summarizer {
					out = append(out, now)
				}
			}
			switch {
			case out == nil:
				return records, nil
			case len(out) > 0:
				return out, nil
			}
		}
	}
}

// overlays reports whether a record has root values that are recorded, or will be: with Ahead and no checkpoint as the first of their thread;
// or root updates of a step that may condense, which follows the checkpoint.
func overlays(rec *bridge.Record) bool { return rec.Checkpoint != "" || rec.Ahead }

// shown gives a record as a look has it: made by the first who asks, and kept a while for the others. When that fails, the record itself.
func (s *Service) shown(ctx context.Context, t id.Thread, rec *bridge.Record, look overlay.Look) *bridge.Record {
	if !look.On || !overlays(rec) || rec.Event == "updates" && !look.Updates {
		return rec
	}
	key := strings.Join([]string{string(t), rec.Offset.String(), string(look.Markers), look.Key, strconv.FormatBool(look.Live)}, " ")
	if made := s.forms.get(key); made != nil {
		return made
	}
	made, err, _ := s.forms.making.Do(key, func() (any, error) {
		// Others wait for it too: it must not end with the reader who happened to come first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		made, err := s.form(ctx, t, rec, look)
		if err == nil {
			s.forms.keep(key, made)
		}
		return made, err
	})
	if err != nil {
		s.log.WarnContext(ctx, "a record is shown without overlay", "thread_id", t, "run_id", rec.Run, "error", err)
		return rec
	}
	return made.(*bridge.Record)
}

func (s *Service) form(ctx context.Context, t id.Thread, rec *bridge.Record, look overlay.Look) (*bridge.Record, error) {
	var ahead *overlay.Ahead
	values := rec.Data
	var state *jsonobj.Object
	if rec.Event == stateUpdate {
		state = jsonobj.Of(jsonobj.Of(rec.Data).Get("state"))
		values, ahead = state.Get("values"), overlay.RecordView
	}
	reading := s.Overlay.Read(t, look)
	defer reading.Done()
	reading.Streams(rec.Run)
	var now json.RawMessage
	var err error
	if rec.Event == "updates" {
		now, err = s.update(ctx, t, reading, rec)
	} else {
		if rec.Ahead {
			ahead = s.ahead(ctx, t, rec)
		}
		now, err = reading.Values(ctx, rec.Checkpoint, values, ahead)
	}
	if err != nil {
		return nil, err
	}
	if same(now, values) {
		return rec, nil
	}
	data := []byte(now)
	if state != nil {
		state.Set("values", now)
		whole := jsonobj.Of(rec.Data)
		whole.Set("state", state.JSON())
		data = whole.JSON()
	}
	made := *rec
	made.Data, made.Frame = data, nil
	return &made, nil
}

// updateDepth bounds how far before the checkpoint of a record of `updates` the one before its step is searched.
const updateDepth = 4

// update shows a record of root updates by the checkpoint before their step.
func (s *Service) update(ctx context.Context, t id.Thread, reading *overlay.Reading, rec *bridge.Record) (json.RawMessage, error) {
	at := rec.Checkpoint
	for range updateDepth {
		shown, applied, err := reading.Update(ctx, at, rec.Data)
		if err != nil || !applied || at == "" {
			return shown, err
		}
		cp, err := s.Store.LoadCheckpoint(ctx, checkpointer.Key{Thread: t, ID: at})
		if err != nil || cp == nil {
			return rec.Data, err
		}
		at = cp.Parent
	}
	return rec.Data, nil
}

// ahead says of a record that is ahead of its checkpoint what its run was called with. Of a run that is gone nothing is known.
func (s *Service) ahead(ctx context.Context, t id.Thread, rec *bridge.Record) *overlay.Ahead {
	ahead := &overlay.Ahead{Grown: true, Run: rec.Run}
	row, err := s.Store.Run(ctx, t, rec.Run)
	if err != nil {
		return ahead
	}
	command := jsonobj.Of(row.Kwargs.Command).Get("update")
	removed := overlay.Removals(row.Kwargs.Input, command)
	ahead.ByClient = func(mid string) bool { return removed[mid] }
	for _, sent := range []json.RawMessage{row.Kwargs.Input, command} {
		cleaned, err := s.Overlay.Clean(ctx, row.Graph, t, rec.Checkpoint, sent)
		if err != nil { // they are shown until the run is recorded
			s.log.WarnContext(ctx, "deleted messages of a run are not known", "run_id", rec.Run, "error", err)
		}
		ahead.Deleted = append(ahead.Deleted, cleaned.Deleted...)
	}
	return ahead
}

// same reports whether two values are the same bytes in memory.
func same(a json.RawMessage, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// formsBytes bounds the records that are kept in another form.
const formsBytes = 32 << 20

// forms keeps records in the forms that readers asked for last, within bounds, in two generations as package checkpointer keeps values.
type forms struct {
	making singleflight.Group

	mu         sync.Mutex
	young, old map[string]*bridge.Record
	bytes      int // of young
}

func (f *forms) get(key string) *bridge.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.young[key]; r != nil {
		return r
	}
	return f.old[key]
}

// forget drops the records of a thread whose transcript was changed where it stood.
func (f *forms) forget(t id.Thread) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := func(key string, _ *bridge.Record) bool { return strings.HasPrefix(key, string(t)+" ") }
	maps.DeleteFunc(f.young, of)
	maps.DeleteFunc(f.old, of)
}

func (f *forms) keep(key string, r *bridge.Record) {
	size := len(key) + len(r.Data) + len(r.Frame) + 256
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.young == nil || f.bytes+size > formsBytes/2 {
		f.young, f.old, f.bytes = map[string]*bridge.Record{}, f.young, 0
	}
	f.young[key] = r
	f.bytes += size
}
