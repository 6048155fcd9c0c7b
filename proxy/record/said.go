package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonscan"
	"understudy/proxy"
	"understudy/thread/partial"
)

// saidBytes limits the answers of all runs together that are kept until the outcome of their run is known. Beyond it those of the oldest
// runs are dropped.
const saidBytes = 128 << 20

// said holds the streamed answers of runs whose outcome is unknown. It is safe for concurrent use.
type said struct {
	limit int

	mu    sync.Mutex
	runs  map[id.Thread]map[id.Run]*speech
	order []*speech // oldest first
	bytes int
}

// speech holds the streamed answers of a run, once per stream that showed it.
type speech struct {
	thread id.Thread
	run    id.Run

	// Guarded by said.mu.
	streams []*words
	live    int  // open streams of only this run
	over    bool // the upstream ended one of them, or reported an error in it
	dropped bool
}

// words holds the answers of a run from one stream.
type words struct {
	speech *speech
	// whole reports that the stream began with the run. Otherwise only events with a complete message are used: the first chunk may lack
	// earlier ones.
	whole bool

	mu     sync.Mutex
	tokens *partial.Tokens
	size   int // as counted in said.bytes
}

func newSaid() *said { return &said{limit: saidBytes, runs: map[id.Thread]map[id.Run]*speech{}} }

// open returns the words for a stream of a run. live reports that the stream ends with the run.
func (s *said) open(t id.Thread, run id.Run, whole, live bool) *words {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.runs[t][run]
	if sp == nil {
		sp = &speech{thread: t, run: run}
		if s.runs[t] == nil {
			s.runs[t] = map[id.Run]*speech{}
		}
		s.runs[t][run] = sp
		s.order = append(s.order, sp)
	}
	w := &words{speech: sp, whole: whole, tokens: partial.NewObservedTokens()}
	sp.streams = append(sp.streams, w)
	if live {
		sp.live++
	}
	return w
}

// add keeps an event. data is copied.
func (s *said) add(w *words, event string, data []byte) {
	if !w.whole && event == "messages" {
		return
	}
	w.mu.Lock()
	w.tokens.Add(event, bytes.Clone(data))
	more := w.tokens.Size() - w.size
	w.size += more
	w.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.speech.dropped {
		return
	}
	s.bytes += more
	for s.bytes > s.limit && len(s.order) > 0 {
		s.remove(s.order[0])
	}
}

// again discards what the stream showed, because another attempt of the run begins.
func (w *words) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens.Reset()
}

// ends notes that the upstream has ended a stream of the run, so that the run has probably ended.
func (s *said) ends(w *words) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.speech.over = true
}

// left notes that a live stream is closed.
func (s *said) left(w *words) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.speech.live--
}

// drop forgets a run.
func (s *said) drop(sp *speech) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(sp)
}

// forget forgets all runs of a thread.
func (s *said) forget(t id.Thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range slices.Collect(maps.Values(s.runs[t])) {
		s.remove(sp)
	}
}

// remove is drop with mu held.
func (s *said) remove(sp *speech) {
	if sp.dropped {
		return
	}
	sp.dropped = true
	delete(s.runs[sp.thread], sp.run)
	if len(s.runs[sp.thread]) == 0 {
		delete(s.runs, sp.thread)
	}
	s.order = slices.DeleteFunc(s.order, func(o *speech) bool { return o == sp })
	for _, w := range sp.streams {
		w.mu.Lock()
		s.bytes -= w.size
		w.tokens, w.size = nil, 0 // a nil *Tokens discards everything
		w.mu.Unlock()
	}
}

// waiting returns the runs of a thread that may have ended.
func (s *said) waiting(t id.Thread) (out []*speech) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.runs[t] {
		if sp.over || sp.live <= 0 {
			out = append(out, sp)
		}
	}
	slices.SortFunc(out, func(a, b *speech) int { return strings.Compare(string(a.run), string(b.run)) }) // ids ascend with time
	return out
}

// answers returns the streamed answers that the run's last checkpoint lacks. Of several streams the one with most of a message is used.
func (s *said) answers(sp *speech, step int, questioned bool) (out []eventstore.Partial) {
	s.mu.Lock()
	streams := slices.Clone(sp.streams)
	s.mu.Unlock()
	at := map[string]int{}
	for _, w := range streams {
		w.mu.Lock()
		messages := w.tokens.Unsaved(step, questioned)
		w.mu.Unlock()
		for _, m := range messages {
			p := eventstore.Partial{ID: m.ID, Message: m.JSON, Step: m.Step, Truncated: m.Truncated}
			if i, known := at[m.ID]; !known {
				at[m.ID] = len(out)
				out = append(out, p)
			} else if len(p.Message) > len(out[i].Message) {
				out[i] = p
			}
		}
	}
	return out
}

// settle records the unsaved answers of runs of the thread that have ended since. The next read retries failures.
func (r *Recorder) settle(ctx context.Context, c *proxy.Call, t id.Thread) {
	for _, sp := range r.said.waiting(t) {
		if err := r.settleRun(ctx, c, sp); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "partial answers not recorded yet", "thread_id", t, "run_id", sp.run, "error", err)
		}
	}
}

func (r *Recorder) settleRun(ctx context.Context, c *proxy.Call, sp *speech) error {
	answer, err := r.get(ctx, c, http.MethodGet, threadPath(sp.thread)+"/runs/"+string(sp.run), nil)
	var no *Refused
	switch {
	case errors.As(err, &no) && no.Status == http.StatusNotFound:
		// Rolled back or deleted, unless the whole thread is hidden from the caller.
		if _, err := r.thread(ctx, c, sp.thread); err == nil {
			r.said.drop(sp)
		}
		return nil
	case refused(err):
		return nil
	case err != nil:
		return err
	}
	switch jsonscan.Text(answer, "status") {
	case "pending", "running":
		return nil
	case "success":
		r.said.drop(sp)
		return nil
	}
	v, err := r.lastOf(ctx, c, sp, answer)
	if err != nil {
		return err
	}
	if v == nil || !r.overlay.KeepsPartial(v.graph) {
		r.said.drop(sp)
		return nil
	}
	step := int(gjson.GetBytes(v.metadata.of(v.body), "step").Int())
	// The input is in the list of messages one step after the checkpoint that holds it. That step may not be saved yet when later ones
	// stream.
	questioned := v.runID != string(sp.run) || v.source != "input"
	if answers := r.said.answers(sp, step, questioned); len(answers) > 0 {
		if _, err := r.recorded(ctx, c, sp.thread, false, v); err != nil {
			return err
		}
		if err := r.store.Record(ctx, func(tx Tx) error {
			_, err := eventstore.RecordPartial(tx, sp.thread, v.id, sp.run, time.Now(), answers)
			return err
		}); err != nil {
			return fmt.Errorf("save partial answers of run %s: %w", sp.run, err)
		}
	}
	r.said.drop(sp)
	return nil
}

// lastOf returns the last checkpoint that a run saved. For a run without input that saved none and is still at its start, that is the
// head. nil: answers cannot be shown, because their question is not saved.
func (r *Recorder) lastOf(ctx context.Context, c *proxy.Call, sp *speech, run []byte) (*view, error) {
	query, err := json.Marshal(map[string]any{"limit": 1, "metadata": map[string]any{"run_id": sp.run}})
	if err != nil {
		return nil, err
	}
	page, err := r.get(ctx, c, http.MethodPost, threadPath(sp.thread)+"/history", query)
	if err != nil {
		return nil, err
	}
	if rows, ok := jsonscan.Elements(page); ok && len(rows) > 0 {
		if v := look(rows[0]); v.root() && v.runID == string(sp.run) {
			return v, nil
		}
	}
	kwargs := gjson.GetBytes(run, "kwargs")
	if input := kwargs.Get("input"); input.Exists() && input.Type != gjson.Null {
		return nil, nil
	}
	v, err := r.state(ctx, c, sp.thread, "")
	if err != nil || !v.root() {
		return nil, err
	}
	began := kwargs.Get("config.configurable.checkpoint_id").String()
	saved, _ := time.Parse(time.RFC3339Nano, gjson.ParseBytes(v.created).String())
	ended, err := time.Parse(time.RFC3339Nano, jsonscan.Text(run, "updated_at"))
	if began != "" && began != string(v.id) || err != nil || saved.After(ended) {
		return nil, nil
	}
	return v, nil
}
