package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/id"
	"understudy/internal/jsonscan"
)

// Summarizer finds among the `messages` events of one execution those that a summarizer causes: its model's words, its summary, and the
// remove messages of the step that condenses. With the overlay they are left out, or frontends flash them as an answer. It is owned by
// whoever publishes the events, in their order.
type Summarizer struct {
	o      *Overlay
	thread id.Thread
	ids    map[string]bool // of messages that a summarizer is writing
	// oldest are the ids of the list at a checkpoint, oldest first, less those that were found removed.
	oldest []string
	listAt id.Checkpoint
}

// Summarizer begins with the first event of an execution.
func (o *Overlay) Summarizer(t id.Thread) *Summarizer {
	return &Summarizer{o: o, thread: t, ids: map[string]bool{}}
}

var (
	summarization = []byte(`"summarization"`)
	removeType    = []byte(`"remove"`)
)

// Causes reports whether an event comes from a summarizer. latest gives the newest checkpoint of the thread; it is asked rarely.
func (s *Summarizer) Causes(ctx context.Context, event string, data json.RawMessage, latest func() id.Checkpoint) (bool, error) {
	if s.o == nil || !strings.HasPrefix(event, "messages") {
		return false, nil
	}
	if event != "messages/partial" && event != "messages/complete" || len(s.ids) == 0 {
		if !bytes.Contains(data, summarization) && !bytes.Contains(data, removeType) {
			return false, nil
		}
	}
	switch event {
	case "messages": // [message, metadata]
		pair, ok := jsonscan.Elements(data)
		if !ok || len(pair) != 2 {
			return false, nil
		}
		if jsonscan.Text(pair[1], "lc_source") == "summarization" || summarizes(pair[0]) {
			return true, nil
		}
		return s.condenses(ctx, pair[0], latest)
	case "messages/metadata": // {id: {"metadata": …}}
		found := false
		gjson.ParseBytes(data).ForEach(func(mid, v gjson.Result) bool {
			if v.Get("metadata.lc_source").String() == "summarization" {
				s.ids[mid.String()], found = true, true
			}
			return true
		})
		return found, nil
	default: // [message, …]
		items, _ := jsonscan.Elements(data)
		for _, m := range items {
			if s.ids[jsonscan.Text(m, "id")] || summarizes(m) {
				return true, nil
			}
			if hides, err := s.condenses(ctx, m, latest); hides || err != nil {
				return hides, err
			}
		}
		return false, nil
	}
}

// condenses reports whether a message removes what a summarizer condenses. Which step does so is known only when it is saved, and that
// is after this event: what takes the oldest away will be judged so. Only nodes are seen here; what clients remove is no event.
func (s *Summarizer) condenses(ctx context.Context, message json.RawMessage, latest func() id.Checkpoint) (bool, error) {
	mid, ok := removal(message)
	if !ok {
		return false, nil
	}
	if mid == removeAll {
		return true, nil
	}
	at := latest()
	if at != s.listAt {
		if err := s.load(ctx, at); err != nil {
			return false, err
		}
	}
	if len(s.oldest) == 0 || s.oldest[0] != mid {
		return false, nil
	}
	s.oldest = s.oldest[1:]
	return true, nil
}

func (s *Summarizer) load(ctx context.Context, at id.Checkpoint) error {
	r := s.o.Read(s.thread, Look{})
	defer r.Done()
	tr, err := r.transcript(ctx, at)
	s.listAt, s.oldest = at, nil
	if err != nil || tr == nil {
		return err
	}
	lists, err := r.contents.get(ctx, s.o.events, s.thread, tr.List)
	if err != nil {
		return err
	}
	for i, e := range lists[0] {
		if i > 0 || e.marker != nil || jsonscan.Text(e.text, "type") != "system" {
			s.oldest = append(s.oldest, e.id)
		}
	}
	return nil
}
