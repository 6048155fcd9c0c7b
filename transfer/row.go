package transfer

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/thread"
)

func graphOf(metadata []byte) string { return jsonobj.Of(metadata).Text("graph_id") }

// runOf returns the run that wrote a checkpoint, from its metadata; "" for state updates.
func runOf(metadata []byte) id.Run {
	if source := gjson.GetBytes(metadata, "source").String(); source == "update" || source == "fork" {
		return ""
	}
	return id.Run(gjson.GetBytes(metadata, "run_id").String())
}

// row writes the row of a thread whose checkpoints are here, unless it exists and nothing was added.
func (m *Importer) row(ctx context.Context, t *Thread, was *thread.Thread, to id.Thread, more bool) (*thread.Thread, bool, error) {
	if was != nil && !more && (m.Graph == "" || graphOf(was.Metadata) != "") {
		return was, false, nil
	}
	row, err := m.madeRow(ctx, t, to)
	if err != nil {
		return nil, false, err
	}
	if was != nil {
		// Changes made here stay.
		row.Metadata = jsonobj.Merge(row.Metadata, was.Metadata)
		row.Config, row.TTL, row.CreatedAt, row.StreamHigh = was.Config, was.TTL, was.CreatedAt, was.StreamHigh
		if !more {
			row.Status, row.Head, row.Interrupts, row.Error = was.Status, was.Head, was.Interrupts, was.Error
			row.UpdatedAt, row.StateUpdatedAt = was.UpdatedAt, was.StateUpdatedAt
		}
	}
	if was == nil {
		return row, true, m.Target.Write(ctx, func(tx thread.Tx) error { return tx.InsertThread(row) })
	}
	return row, true, m.write(ctx, to, func(tx thread.Tx, now *thread.Thread) error {
		if now.Head != was.Head || !now.UpdatedAt.Equal(was.UpdatedAt) {
			return errChanged
		}
		return tx.UpdateThread(row)
	})
}

// madeRow returns a thread's row from the source's row and its newest root checkpoint.
func (m *Importer) madeRow(ctx context.Context, t *Thread, to id.Thread) (*thread.Thread, error) {
	row := &thread.Thread{Status: thread.Idle}
	if t.Row != nil {
		*row = *t.Row
		row.StreamHigh, row.Head = 0, ""
		m.Rename.row(row)
	}
	row.ID = to
	head, err := m.Target.LoadCheckpoint(ctx, checkpointer.Key{Thread: to})
	if err != nil {
		return nil, err
	}
	metadata := jsonobj.Of(row.Metadata)
	if head != nil {
		row.Head, row.Touched = head.ID, true
		for _, key := range []string{"graph_id", "assistant_id"} {
			if text := jsonobj.Of(head.Metadata).Text(key); text != "" && metadata.Text(key) == "" {
				metadata.SetText(key, text)
			}
		}
		last := stamp(head)
		if t.Row == nil {
			if row.CreatedAt, err = m.firstStamp(ctx, to); err != nil {
				return nil, err
			}
			row.UpdatedAt = last
		}
		if row.StateUpdatedAt.IsZero() {
			row.StateUpdatedAt = last
		}
		if row.Interrupts == nil || t.Row == nil {
			row.Interrupts = waiting(head)
		}
		switch {
		case t.Row == nil:
			row.Status = statusOf(head)
		case row.Status == thread.Busy:
			// Its run continues there. Interrupted would say that a person has to answer.
			if row.Status = statusOf(head); row.Status == thread.Interrupted && string(row.Interrupts) == string(emptyObject) {
				row.Status = thread.Idle
			}
		}
	}
	now := m.Now().UTC()
	for _, at := range []*time.Time{&row.CreatedAt, &row.UpdatedAt, &row.StateUpdatedAt} {
		if at.IsZero() {
			*at = now
		}
	}
	if row.Status == thread.Busy {
		row.Status = thread.Idle
	}
	if m.Graph != "" && metadata.Text("graph_id") == "" {
		m.graphless++
		metadata.SetText("graph_id", m.Graph)
		metadata.SetText("assistant_id", string(id.DefaultAssistant(m.Graph)))
	}
	if string(to) != t.Key {
		metadata.SetText(original, t.Key)
	}
	if row.Metadata = metadata.JSON(); len(row.Config) == 0 {
		row.Config = emptyObject
	}
	return row, nil
}

// stamp returns when a checkpoint was created; the zero time when unknown.
func stamp(t *checkpointer.Tuple) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, gjson.GetBytes(t.Data, "ts").String())
	return at.UTC()
}

// firstStamp returns when the first checkpoint of a thread was created.
func (m *Importer) firstStamp(ctx context.Context, t id.Thread) (first time.Time, err error) {
	links, err := m.Target.Links(ctx, t)
	if err != nil || len(links) == 0 {
		return first, err
	}
	oldest := links[0] // by namespace and id: the first is the oldest of the root
	tuple, err := m.Target.LoadCheckpoint(ctx, checkpointer.Key{Thread: t, NS: oldest.NS, ID: oldest.ID})
	if err != nil || tuple == nil {
		return first, err
	}
	return stamp(tuple), nil
}

// LangGraph's names of channels and writes.
const (
	channelTasks     = "__pregel_tasks"
	channelStart     = "__start__"
	channelInterrupt = "__interrupt__"
	channelError     = "__error__"
	channelResume    = "__resume__"
	branchPrefix     = "branch:to:"
)

// statusOf returns the status of a thread as far as rows show it without the graph: a task that
// failed, one that asked, a channel that triggers a node and was not consumed, sends.
func statusOf(head *checkpointer.Tuple) thread.Status {
	failed, asked := false, false
	for _, w := range head.Writes {
		failed = failed || w.Channel == channelError
		asked = asked || w.Channel == channelInterrupt
	}
	switch {
	case failed:
		return thread.Errored
	case asked && string(waiting(head)) != "{}":
		return thread.Interrupted
	}
	next := false
	trigger := func(channel string) bool {
		return channel == channelStart || strings.HasPrefix(channel, branchPrefix) || strings.HasPrefix(channel, "start:") || strings.HasPrefix(channel, "branch:")
	}
	gjson.GetBytes(head.Data, "channel_values").ForEach(func(k, _ gjson.Result) bool {
		next = next || trigger(k.String())
		return true
	})
	for i := range head.Blobs {
		b := &head.Blobs[i]
		switch {
		case b.Type == "empty":
		case b.Channel == channelTasks:
			items, err := b.SplitList()
			next = next || err == nil && len(items) > 0
		case trigger(b.Channel):
			// Values remain under their versions; consumed ones are those that their node has seen.
			next = next || unseen(head, b.Channel)
		}
	}
	if next {
		return thread.Interrupted
	}
	return thread.Idle
}

// unseen reports whether a channel has a version that no node has seen.
func unseen(head *checkpointer.Tuple, channel string) bool {
	name := gjson.Escape(channel)
	version := gjson.GetBytes(head.Data, "channel_versions."+name).String()
	seen := false
	gjson.GetBytes(head.Data, "versions_seen").ForEach(func(_, node gjson.Result) bool {
		seen = seen || node.Get(name).String() >= version
		return !seen
	})
	return !seen
}

// waiting returns the interrupts of a head by task, in the form of a thread's row.
func waiting(head *checkpointer.Tuple) json.RawMessage {
	return checkpointer.NewSnapshots(nil, nil).HeadOfRows(head).Interrupts
}
