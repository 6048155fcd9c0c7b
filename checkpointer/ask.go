package checkpointer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

var (
	errNobody = errors.New("no graph can explain the checkpoint")
	errVague  = errors.New("the graph returned no values or tasks")
	errMoved  = errors.New("the head changed while its graph explained it")
)

// need is the part of a checkpoint that only the graph can provide.
type need int

const (
	nothingAsked need = iota
	valuesAsked
	allAsked // the checkpoint has no description
)

// content is the shown content of a checkpoint, from its description or a graph's answer.
type content struct {
	shape  *shape
	tasks  []taskInfo
	values json.RawMessage // returned by the graph; nil: compose them from rows
}

// taskInfo is an entry of Checkpoint.Tasks.
type taskInfo struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Path     json.RawMessage `json:"path"`
	Subgraph bool            `json:"subgraph"`
}

// needs returns what rows do not contain. live: see view.
func (s *Snapshots) needs(ctx context.Context, t *Tuple, live bool) (need, error) {
	if len(t.Tasks) == 0 || string(t.Tasks) == "null" {
		return allAsked, nil
	}
	sh, err := s.shape(ctx, t.Shape)
	if err != nil {
		return 0, fmt.Errorf("shape of %s: %w", describeKey(t.Key), err)
	}
	if sh == nil {
		return allAsked, nil
	}
	for _, w := range t.Writes {
		switch {
		case controlWrite(w.Channel):
		case w.TaskID == nullTask:
			// Updates of a Command go through reducers. Its goto only changes the next tasks, which are not shown.
			if sh.shows(w.Channel) {
				return valuesAsked, nil
			}
		case live && gjson.GetBytes(t.Tasks, `#(id==`+strconv.Quote(w.TaskID)+`)`).Exists():
			return valuesAsked, nil
		}
	}
	for _, name := range sh.delta {
		if gjson.GetBytes(t.Data, "channel_versions."+gjson.Escape(name)).Exists() && t.blob(name) == nil {
			return valuesAsked, nil
		}
	}
	return nothingAsked, nil
}

// content collects the content of a checkpoint. When the graph is not available, it uses only the rows.
func (s *Snapshots) content(ctx context.Context, t *Tuple, v view) (content, error) {
	n, err := s.needs(ctx, t, v.live)
	if err != nil {
		return content{}, err
	}
	var c content
	if n != allAsked {
		if c.shape, err = s.shape(ctx, t.Shape); err != nil {
			return c, err
		}
		if err := json.Unmarshal(t.Tasks, &c.tasks); err != nil {
			return c, fmt.Errorf("description of %s: %w", describeKey(t.Key), err)
		}
	}
	if n == nothingAsked {
		return c, nil
	}
	if n == allAsked {
		c.tasks = tasksOfWrites(t) // unless the graph answers
	}
	if v.failed != nil && v.failed.Load() >= patience {
		return c, nil
	}
	a, err := s.answer(ctx, t, v.live)
	if err != nil {
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
		if v.failed != nil {
			v.failed.Add(1)
		}
		s.warn(ctx, "a graph could not be asked about a checkpoint: showing what rows say", t, err)
		return c, nil
	}
	if a.moved && !v.moving {
		return c, errMoved
	}
	c.values = a.Values
	if n == allAsked {
		c.tasks = nil
		if err := json.Unmarshal(a.Tasks, &c.tasks); err != nil {
			return c, fmt.Errorf("explanation of %s: %w", describeKey(t.Key), err)
		}
		if len(a.Shape) > 0 {
			if c.shape, err = parseShape(a.Shape); err != nil {
				return c, fmt.Errorf("explanation of %s: %w", describeKey(t.Key), err)
			}
		}
	}
	return c, nil
}

// kept is an answer in its stored form.
type kept struct {
	Values json.RawMessage `json:"values"`
	Tasks  json.RawMessage `json:"tasks"`
	// Shape is the full definition: the storage has only shapes that came with a checkpoint.
	Shape Shape `json:"shape,omitempty"`
	// moved reports that the head has changed meanwhile, or has more writes. Such an answer is not stored.
	moved bool
}

// patience is how many requests of one call may fail. After that, a graph that cannot be loaded is not tried again for
// each row of a long history.
const patience = 3

// askLimit is the time limit of a graph's answer. Building a graph by a factory can take seconds.
const askLimit = time.Minute

// answer returns the graph's answer for a checkpoint with its current writes: cached, or requested once for all concurrent
// callers.
func (s *Snapshots) answer(ctx context.Context, t *Tuple, live bool) (kept, error) {
	key := answerKey(t, live)
	if raw, err := s.rows.LoadAnswer(ctx, t.Key, key); err != nil {
		return kept{}, fmt.Errorf("load explanation of %s: %w", describeKey(t.Key), err)
	} else if raw != nil {
		var a kept
		if err := json.Unmarshal(raw, &a); err != nil {
			return a, fmt.Errorf("stored explanation of %s: %w", describeKey(t.Key), err)
		}
		return a, nil
	}
	if s.ask == nil {
		return kept{}, errNobody
	}
	flight := string(t.Thread) + "\x00" + t.NS + "\x00" + string(t.ID) + "\x00" + key
	done := s.asking.DoChan(flight, func() (any, error) {
		// Others wait for this answer too, so it must not end with the first request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		defer cancel()
		return s.askOnce(ctx, t, key, live)
	})
	select {
	case <-ctx.Done():
		return kept{}, context.Cause(ctx)
	case r := <-done:
		if r.Err != nil {
			return kept{}, r.Err
		}
		return r.Val.(kept), nil
	}
}

func (s *Snapshots) askOnce(ctx context.Context, t *Tuple, key string, live bool) (a kept, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("explain %s: panic: %v", describeKey(t.Key), p)
		}
	}()
	e, err := s.ask.Explain(ctx, t.Key, live)
	if err != nil {
		return a, err
	}
	if len(e.Values) == 0 || len(e.Tasks) == 0 {
		return a, errVague
	}
	a = kept{Values: e.Values, Tasks: e.Tasks, Shape: e.ShapeJSON}
	if a.Shape == nil && e.Shape != "" {
		if a.Shape, err = s.rows.LoadShape(ctx, e.Shape); err != nil {
			return a, err
		}
		if a.Shape == nil {
			if shape, ok := s.answered.Load(e.Shape); ok {
				a.Shape = shape.(Shape)
			}
		}
	} else if e.Shape != "" {
		s.answered.Store(e.Shape, a.Shape)
	}
	if live {
		// The graph reads its head itself, and may have seen a later one.
		head, err := s.bare(ctx, Key{Thread: t.Thread, NS: t.NS})
		if err != nil {
			return a, err
		}
		if a.moved = head == nil || head.ID != t.ID || answerKey(head, live) != key; a.moved {
			return a, nil
		}
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return a, fmt.Errorf("store explanation of %s: %w", describeKey(t.Key), err)
	}
	if err := s.rows.KeepAnswer(ctx, t.Key, key, raw); err != nil {
		// The answer is still correct; the next reader asks again.
		s.warn(ctx, "an answer about a checkpoint was not kept", t, err)
	}
	return a, nil
}

// answerKey identifies the view, and the writes that an answer took into account: how many, and which. Control writes
// change neither values nor tasks.
func answerKey(t *Tuple, live bool) string {
	h, n := fnv.New64a(), 0
	for _, w := range t.Writes {
		if controlWrite(w.Channel) || !live && w.TaskID != nullTask {
			continue
		}
		n++
		fmt.Fprintf(h, "%s\x00%d\x00%s\x00", w.TaskID, w.Index, w.Channel)
	}
	kind := "record"
	if live {
		kind = "live"
	}
	return kind + ":" + strconv.Itoa(n) + ":" + strconv.FormatUint(h.Sum64(), 16)
}
