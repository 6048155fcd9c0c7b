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

// Summarizer finds the events of one execution that a summarizer causes: the output of its model (`messages`, `events`), its summary, and the
// remove messages of the step that condenses. With the overlay they are left out, because frontends would show them briefly as an answer. The
// publisher of the events owns it and passes them in order. It is not safe for concurrent use.
type Summarizer struct {
	o       *Overlay
	thread  id.Thread
	ids     map[string]bool // of messages that a summarizer is writing
	pairs   jsonscan.Pairs
	suspect bool   // the metadata of the last chunk may hide it
	held    string // message of the last `messages/metadata` event whose author is not yet known
	// oldest are the ids of the list at a checkpoint, oldest first, without those found removed.
	oldest []string
	listAt id.Checkpoint
}

// Summarizer returns a Summarizer for a new execution.
func (o *Overlay) Summarizer(t id.Thread) *Summarizer {
	return &Summarizer{o: o, thread: t, ids: map[string]bool{}}
}

// Fate is how readers of transcripts get an event.
type Fate uint8

const (
	Shown      Fate = iota
	Hidden          // a summarizer caused it
	HiddenBoth      // caused by a summarizer; the previous Held event is hidden too
	Held            // the next event decides: a `messages/metadata` event comes before the first words of its message
)

var (
	summarization = []byte(`"summarization"`)
	removeType    = []byte(`"remove"`)
)

// MayHide reports whether a Summarizer judges events with this name, namespace included. Others are Shown.
func MayHide(event string) bool {
	return strings.HasPrefix(event, "messages") || strings.HasPrefix(event, "events")
}

// Judge returns the fate of an event. A Held event is shown before the next one, whatever the fate of that, unless it is HiddenBoth.
// latest returns the newest checkpoint of the thread; it is called rarely.
func (s *Summarizer) Judge(ctx context.Context, event string, data json.RawMessage, latest func() id.Checkpoint) (Fate, error) {
	held := s.held
	s.held = ""
	event, _, _ = strings.Cut(event, "|")
	if s.o == nil {
		return Shown, nil
	}
	switch event {
	case "events":
		if bytes.Contains(data, summarization) && jsonscan.Text(jsonscan.Raw(data, "metadata"), "lc_source") == "summarization" {
			return Hidden, nil
		}
	case "messages": // [message, metadata]
		message, metadata, again, ok := s.pairs.Split(data)
		if !ok {
			break
		}
		if !again {
			s.suspect = mayHide(metadata)
		}
		if !s.suspect && !mayHide(message) {
			break
		}
		if jsonscan.Text(metadata, "lc_source") == "summarization" || summarizes(message) {
			return Hidden, nil
		}
		hides, err := s.condenses(ctx, message, latest)
		return fateOf(hides), err
	case "messages/metadata": // {id: {"metadata": …}}
		return s.announced(data), nil
	case "messages/partial", "messages/complete": // [message, …]
		mid, hides, err := s.hides(ctx, data, latest)
		if hides && held != "" && mid == held {
			return HiddenBoth, err
		}
		return fateOf(hides), err
	}
	return Shown, nil
}

func fateOf(hides bool) Fate {
	if hides {
		return Hidden
	}
	return Shown
}

func mayHide(data []byte) bool {
	return bytes.Contains(data, summarization) || bytes.Contains(data, removeType)
}

// announced judges a `messages/metadata` event, which comes before the first words of its messages.
func (s *Summarizer) announced(metadata []byte) Fate {
	fate := Shown
	gjson.ParseBytes(metadata).ForEach(func(mid, v gjson.Result) bool {
		switch {
		case v.Get("metadata.lc_source").String() == "summarization":
			s.ids[mid.String()] = true
			fate = Hidden
		case fate == Shown:
			s.held, fate = mid.String(), Held
		}
		return true
	})
	if fate != Held {
		s.held = ""
	}
	return fate
}

// hides reports whether one of the messages is hidden, and returns its id.
func (s *Summarizer) hides(ctx context.Context, data []byte, latest func() id.Checkpoint) (mid string, hides bool, err error) {
	if len(s.ids) == 0 && !mayHide(data) {
		return "", false, nil
	}
	items, _ := jsonscan.Elements(data)
	for _, m := range items {
		mid = jsonscan.Text(m, "id")
		hides = s.ids[mid] || summarizes(m)
		if !hides {
			hides, err = s.condenses(ctx, m, latest)
		}
		if hides || err != nil {
			return mid, hides, err
		}
	}
	return "", false, nil
}

// condenses reports whether a message removes messages that a summarizer condenses. The step is recorded only when it is saved, after this
// event, and then counts as condensing if it removes the oldest message. Only nodes cause events here; removals by clients do not.
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
	entries, err := r.list(ctx, at)
	s.listAt, s.oldest = at, nil
	for i, e := range entries {
		if i > 0 || e.marker != nil || jsonscan.Text(e.text, "type") != "system" {
			s.oldest = append(s.oldest, e.id)
		}
	}
	return err
}
