// Package readmodel keeps read models of the log: rows that answer what a reader would otherwise have to search whole logs for. They are a pure function of the
// events of each thread (project), so they can be made anew at any time and compared with what is stored (Rebuild). One follower of the log updates them, and
// stores its offset in the same transaction.
package readmodel

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
)

// Names of read models.
const (
	Branches = "branches" // of which threads a thread is a fork
	Heads    = "heads"    // where each thread is
	Messages = "messages" // which checkpoint saved a message
	Timeline = "timeline" // what happened on all threads
)

// Models are all read models.
func Models() []string { return []string{Branches, Heads, Messages, Timeline} }

// Row is a row of a read model. Thread, Model, Name and Seq are its key.
type Row struct {
	Thread id.Thread
	Model  string
	// Name is, in branches, the source of the fork; in messages, the ID of the message (messageName); in timeline and heads, what happened, in heads to the last run.
	Name string
	Seq  eventstore.Seq // of the event; in heads, of the last one
	At   int64          // when, in microseconds since 1970; 0: that is not known
	Run  id.Run         // "" when it is of none
	// Checkpoint is, in branches, the one the fork continues from; in messages, the one that saved the message.
	Checkpoint id.Checkpoint
	// Ref is, in branches, the event of the source; in messages, the first event of a message that this one revises, else 0; in heads, the last event of a message.
	Ref eventstore.Seq
}

// What happened, as Row.Name of timeline and heads.
const (
	Started     = "started"
	Completed   = "completed"
	Interrupted = "interrupted" // it succeeded, and its thread waits for an answer
	Failed      = "failed"
	Cancelled   = "cancelled"
	Retried     = "retried"
	RolledBack  = "rolled_back"
	Forked      = "forked"
	Condensed   = "condensed"
	Removed     = "removed"
)

// happened returns what an event is in the timeline, and whether it changes the state of a run; "": nothing.
func happened(e *eventstore.Event) (name string, ofRun bool) {
	switch e.Type {
	case eventstore.TypeRunStart:
		return Started, true
	case eventstore.TypeRunError:
		return Failed, true
	case eventstore.TypeRunRetry:
		return Retried, true
	case eventstore.TypeRunRollback:
		return RolledBack, true
	case eventstore.TypeRunEnd:
		switch m := gjson.ParseBytes(e.Metadata); {
		case m.Get("status").Str == "interrupted":
			return Cancelled, true
		case m.Get("waiting").Bool():
			return Interrupted, true
		}
		return Completed, true
	case eventstore.TypeFork:
		return Forked, true
	case eventstore.TypeSummarize:
		return Condensed, false
	case eventstore.TypeRemoved:
		return Removed, false
	}
	return "", false
}

// project returns what the next events of a thread add to its rows, and its head. own is the event from which on they are its own: those before are of the source of a
// fork. Only what never changes of an event counts, so marks of deleted runs do not.
func project(events []*eventstore.Event, own eventstore.Seq, head *Row, lineages map[eventstore.Seq]eventstore.Lineage) (rows []Row, last *Row) {
	if head != nil {
		copied := *head
		last = &copied
	}
	for _, e := range events {
		if last == nil {
			last = &Row{Thread: e.Thread, Model: Heads}
		}
		row := Row{Thread: e.Thread, Seq: e.Seq, At: micros(e.CreatedAt), Run: e.Run}
		last.Seq, last.At = row.Seq, cmp.Or(row.At, last.At)
		add := func(model, name string) *Row {
			row := row
			row.Model, row.Name = model, name
			rows = append(rows, row)
			return &rows[len(rows)-1]
		}
		if lineage, fork := lineages[e.Seq]; fork {
			r := add(Branches, string(lineage.Source))
			r.Checkpoint, r.Ref = lineage.Checkpoint, lineage.Seq
		}
		if e.Category == eventstore.CategoryMessage {
			last.Ref = e.Seq
			if e.MessageID != "" {
				r := add(Messages, messageName(e.MessageID))
				r.Checkpoint, r.Ref = id.Checkpoint(gjson.GetBytes(e.Metadata, "checkpoint_id").Str), e.First
			}
		}
		if name, ofRun := happened(e); name != "" {
			if ofRun {
				last.Name, last.Run = name, e.Run
			}
			if e.Seq >= own {
				add(Timeline, name)
			}
		}
	}
	return rows, last
}

// maxName is the longest ID of a message, in bytes, that is a name. Clients choose them, and an index of Postgres takes about 2,600 bytes.
const maxName = 1024

// messageName returns the name of a message's rows: its ID, or the digest of a long one.
func messageName(message string) string {
	if len(message) <= maxName {
		return message
	}
	digest := sha256.Sum256([]byte(message))
	return "sha256:" + hex.EncodeToString(digest[:])
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// key is the key of a row in its thread.
type key struct {
	model, name string
	seq         eventstore.Seq
}

func (r *Row) key() key { return key{r.Model, r.Name, r.Seq} }

// differences compares stored rows with those that should be there. A row with other columns is in both results.
func differences(stored, want []Row, models []string) (extra, missing []Row) {
	have := make(map[key]Row, len(stored))
	for _, r := range stored {
		have[r.key()] = r
	}
	for _, r := range want {
		if !slices.Contains(models, r.Model) {
			continue
		}
		if have[r.key()] != r {
			missing = append(missing, r)
		} else {
			delete(have, r.key())
		}
	}
	for _, r := range stored {
		if _, left := have[r.key()]; left && slices.Contains(models, r.Model) {
			extra = append(extra, r)
		}
	}
	return extra, missing
}
