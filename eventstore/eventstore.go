package eventstore

import (
	"context"
	"encoding/json"
	"time"

	"understudy/id"
)

// Seq is the position of an event in its thread: 1, 2, 3…, never reused.
type Seq int64

// Event is one durable row of the log.
type Event struct {
	Thread    id.Thread
	Seq       Seq             // set by AppendEvents
	Run       id.Run          // "" when none
	Type      string          // one of the Type constants
	Category  string          // one of the Category constants
	MessageID string          // of messages and of summaries that are a message; else ""
	Content   []byte          // JSON
	Metadata  json.RawMessage // object
	CreatedAt time.Time
	// First is the first event of the message that this event revises; 0: this is the first.
	First Seq
	// Digest is that of the message as the graph stored it, to detect changes; nil for other events, and for partial answers.
	Digest []byte
	// Anonymous reports that the graph gave the message no id; MessageID was derived from its content.
	Anonymous bool
}

// Types of events.
const (
	TypeHuman     = "llm.human.input"
	TypeAI        = "llm.ai.response"
	TypeTool      = "llm.tool.result"
	TypeSystem    = "llm.system.input"
	TypeMessage   = "llm.message"          // a message of any other kind
	TypeSummarize = "middleware:summarize" // {"id","replaced_count","summary","ids"}: id is that of the marker
	TypeRemoved   = "message_removed"      // {"ids"}

	TypeFork = "thread.fork" // Lineage: the thread is a copy or a fork, and the events before are those of its source

	TypeRunStart    = "run.start"    // {"chain"}: the graph
	TypeRunEnd      = "run.end"      // the completion data of the run
	TypeRunError    = "run.error"    // text
	TypeRunRetry    = "run.retry"    // text: why the run is in the queue again
	TypeRunRollback = "run.rollback" // {"run_id"}: the run was undone; its events before this one are outside of every transcript
)

// Categories of events.
const (
	CategoryMessage    = "message"
	CategoryMiddleware = "middleware"
	CategoryTrace      = "trace"
	CategoryOutputs    = "outputs"
	CategoryError      = "error"
)

// Head is the part of an event that judging needs: a row without its content.
type Head struct {
	Seq       Seq
	First     Seq // as Event.First
	Type      string
	MessageID string
	Digest    []byte
	Anonymous bool
}

// Range is a range of seqs, both ends included.
type Range struct{ From, To Seq }

// Row is what was recorded for a checkpoint.
type Row struct {
	Thread     id.Thread
	Checkpoint id.Checkpoint
	Node       int64  // has the transcript and list; 0: both are empty
	Stamp      int64  // of the node
	Version    string // of the channel `messages`
	Summary    string // versions of the channels that may hold a summary's text
	Source     string // metadata.source
	Run        id.Run
	// Opaque reports that the channel does not hold messages; Node is that of the last checkpoint that had some.
	Opaque bool
}

// Node is a transcript and a list, whole or as the difference to another node. Nodes are immutable.
type Node struct {
	ID    int64 // set by PutNode: 1, 2, 3… in a thread
	Base  int64 // the node that Data is the difference to; 0: Data is whole
	Stamp int64 // random: distinguishes nodes with the same ID after a rollback
	Whole int   // bytes of the whole node it is based on
	Since int   // bytes of the differences since then, including this one
	Data  []byte
}

// Tx is the part of a storage transaction that recording uses. Missing rows are nil, without an error.
type Tx interface {
	// AppendEvents appends events to the thread, and sets their Seq.
	AppendEvents(t id.Thread, events []*Event) error
	// RollBackEvents marks the events of a run as rolled back: they stay in the log, outside every transcript.
	RollBackEvents(t id.Thread, r id.Run) error

	// TranscriptRow returns what was recorded for a checkpoint.
	TranscriptRow(t id.Thread, c id.Checkpoint) (*Row, error)
	// TranscriptOfVersion returns what was recorded for the newest checkpoint that has this version of the messages.
	TranscriptOfVersion(t id.Thread, version string) (*Row, error)
	// PutTranscriptRow stores the row, replacing an existing one.
	PutTranscriptRow(r *Row) error
	// PutNode stores a node and sets its ID.
	PutNode(t id.Thread, n *Node) error
	// Nodes returns the chain of a node: a whole node first, then differences, the node itself last.
	Nodes(t id.Thread, node int64) ([]Node, error)
	// Heads returns the heads of the events in ranges, in order of seq.
	Heads(t id.Thread, ranges []Range) ([]Head, error)
	// Content returns the content of an event.
	Content(t id.Thread, s Seq) ([]byte, error)

	// ChannelValue returns the stored value of a root channel at a version; an empty type when there is none.
	ChannelValue(t id.Thread, channel, version string) (typ string, data []byte, err error)
	// ClientWrites returns the values that the input and commands wrote to a channel on a root checkpoint: writes of its task
	// `__start__` and of the null task.
	ClientWrites(t id.Thread, c id.Checkpoint, channel string) ([]Value, error)
	// RunInput returns the input and command of a run; nil when it had none or was deleted.
	RunInput(r id.Run) (input, command json.RawMessage, err error)

	// Cache returns the cache shared by all transactions of the storage.
	Cache() *Cache
}

// Value is a serialised value.
type Value struct {
	Type string // as in package checkpointer: msgpack, json, null, empty…
	Data []byte
	// Packed is a msgpack list by its items. When it is not nil, it replaces Data.
	Packed [][]byte
	// Items is a list of messages as clients see them, each as JSON. When it is not nil, it replaces Type and Data.
	Items [][]byte
}

// Reader reads the log and the transcripts. Every method sees committed rows only.
type Reader interface {
	// Events returns the log above a seq, in order; limit <= 0: all.
	Events(ctx context.Context, t id.Thread, after Seq, limit int) ([]*Event, error)
	// Transcripts reads the transcripts of checkpoints of a thread at once. How often it asks the database does not depend on how many they are.
	Transcripts(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (*Transcripts, error)
	// EachContent calls fn with the events of the ranges, range by range, each in order of seq. The event and its bytes
	// are valid only during the call.
	EachContent(ctx context.Context, t id.Thread, ranges []Range, fn func(*Event) error) error
}

// TranscriptAt reads the transcript of one checkpoint. See Transcripts.At.
func TranscriptAt(ctx context.Context, r Reader, t id.Thread, c id.Checkpoint) (*Transcript, error) {
	read, err := r.Transcripts(ctx, t, []id.Checkpoint{c})
	if err != nil {
		return nil, err
	}
	return read.At(c)
}

// Transcript is the messages of a thread as a person saw them at a checkpoint.
type Transcript struct {
	Entries []Entry
	// List is the messages of the checkpoint, as events, which the model sees. Entry.Summary is set for summaries.
	List []Entry
	// Anonymous are all messages without id in the lineage, including removed ones.
	Anonymous []Entry
	// Run and Source are those of the checkpoint, and Texts is what TextsOf returned for it.
	Run    id.Run
	Source string
	Texts  string
	// Log distinguishes the thread's log from that of a later thread with the same id. 0 when no other process can delete threads
	// unnoticed.
	Log int64
}

// Entry is a place in a transcript or list.
type Entry struct {
	Seq Seq
	// Summary reports that the event is a TypeSummarize. In a transcript the entry is a marker, in a list the message of the
	// summary.
	Summary bool
}

// Ranges returns the seqs of entries as ranges, in the order of the entries.
func Ranges(entries []Entry) []Range {
	var rs []Range
	for _, e := range entries {
		if n := len(rs); n > 0 && rs[n-1].To+1 == e.Seq {
			rs[n-1].To = e.Seq
		} else {
			rs = append(rs, Range{e.Seq, e.Seq})
		}
	}
	return rs
}
