package transfer

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonplus"
	"understudy/thread"
)

// TranscriptSource is a Source with whole conversations, including messages that its checkpoints
// no longer have.
type TranscriptSource interface {
	// Transcript returns the messages of a thread as people see them, oldest first, without
	// markers; nil when the source has none.
	Transcript(ctx context.Context, t *Thread) ([]json.RawMessage, error)
}

var _ TranscriptSource = (*Server)(nil)

// Transcript is TranscriptSource.Transcript, for servers that have it: this one and its proxy.
func (s *Server) Transcript(ctx context.Context, t *Thread) (out []json.RawMessage, err error) {
	var rows []gjson.Result
	for after := int64(0); ; {
		answer, err := s.ask(ctx, http.MethodGet, "/threads/"+url.PathEscape(t.Key)+"/messages?limit=1000&after_seq="+strconv.FormatInt(after, 10), nil)
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		page := gjson.ParseBytes(answer)
		for _, row := range page.Get("data").Array() {
			after = max(after, row.Get("seq").Int())
			rows = append(rows, row)
		}
		if !page.Get("has_more").Bool() {
			break
		}
	}
	rows = eventstore.Arrange(rows,
		func(row gjson.Result) eventstore.Seq { return eventstore.Seq(row.Get("seq").Int()) },
		func(row gjson.Result) (eventstore.Seq, bool) {
			named := row.Get("metadata.after_seq")
			return eventstore.Seq(named.Int()), named.Exists()
		})
	for _, row := range rows {
		if row.Get("category").String() == eventstore.CategoryMessage && jsonplus.IsMessage([]byte(row.Get("content").Raw)) {
			out = append(out, json.RawMessage(row.Get("content").Raw))
		}
	}
	return out, nil
}

// nowhere is the parent of a checkpoint that has none although it is not the first, because
// pruning removes parents. It sorts before all others.
const nowhere id.Checkpoint = "00000000-0000-0000-0000-000000000000"

// earlier records what the source's transcript has and its checkpoints do not: where the parent of
// the oldest one is gone, pruned for instance, that parent is recorded as if it held the
// conversation so far. Recording the checkpoint itself then shows what was condensed.
func (m *Importer) earlier(ctx context.Context, src TranscriptSource, t *Thread, links []Link, to id.Thread) error {
	there := places(links)
	for _, l := range links {
		_, ok := there[place{"", l.Parent}]
		if l.NS != "" || ok {
			continue
		}
		// Use the first that was not created from another one: later ones have it as ancestor, and a
		// fork adds nothing.
		row, messages, own, err := m.messages(ctx, to, l.ID)
		if err != nil || own == nil || l.Parent == "" && gjson.GetBytes(row.Metadata, "step").Int() < 0 {
			return err
		}
		transcript, err := src.Transcript(ctx, t)
		if err != nil {
			return err
		}
		upTo := 0
		for i, text := range transcript {
			if own[gjson.GetBytes(text, "id").String()] {
				upTo = i + 1
			}
		}
		if upTo == 0 {
			return nil // nothing in common: the order is unknown
		}
		list := msgp.AppendArrayHeader(nil, uint32(upTo))
		for _, text := range transcript[:upTo] {
			if list, err = jsonplus.AppendMessage(list, text); err != nil {
				return err
			}
		}
		facts := eventstore.FactsOf(&checkpointer.Put{Checkpoint: *row, Blobs: []checkpointer.Blob{messages}})
		if facts.Parent == "" {
			facts.Parent = nowhere
		}
		before := eventstore.Facts{
			Thread: to, Checkpoint: facts.Parent, Source: "loop", At: facts.At, Version: "before " + string(l.ID),
			Messages: &eventstore.Value{Type: jsonplus.TypeMsgpack, Data: list},
		}
		return m.Target.Write(ctx, func(tx thread.Tx) error {
			if err := eventstore.Record(tx, before); err != nil {
				return err
			}
			return eventstore.Record(tx, facts)
		})
	}
	return nil
}

// messages returns a root checkpoint with its messages and their ids; nil ids when it has none.
func (m *Importer) messages(ctx context.Context, t id.Thread, c id.Checkpoint) (*checkpointer.Checkpoint, checkpointer.Blob, map[string]bool, error) {
	const channel = "messages"
	row, err := m.Target.RootCheckpoint(ctx, t, c)
	if err != nil || row == nil {
		return nil, checkpointer.Blob{}, nil, err
	}
	version := gjson.GetBytes(row.Data, "channel_versions."+channel).String()
	v, err := m.Target.RootValue(ctx, t, channel, version)
	if err != nil || v.Type != jsonplus.TypeMsgpack {
		return row, checkpointer.Blob{}, nil, err
	}
	items, err := jsonplus.SplitArray(v.Data)
	if err != nil {
		return row, checkpointer.Blob{}, nil, nil // not messages
	}
	ids := map[string]bool{}
	for _, item := range items {
		if msg, ok := jsonplus.ParseMessage(item); ok && msg.HasID {
			ids[msg.ID] = true
		}
	}
	return row, checkpointer.Blob{Channel: channel, Version: version, Type: v.Type, Data: v.Data}, ids, nil
}
