package checkpointer

import (
	"context"
	"encoding/json"

	"understudy/id"
)

// Key identifies a checkpoint, or with an empty ID the newest one of a namespace.
type Key struct {
	Thread id.Thread
	NS     string // "" is the root; `node:task` below it, levels joined by "|"
	ID     id.Checkpoint
}

// Blob is the value of one channel at one version, serialised by its writer (JsonPlus: null, bytes, msgpack, json…). Read
// it with Size, AppendTo and SplitList: a storage that keeps lists by item returns them by item.
type Blob struct {
	Channel string
	Version string
	Type    string // "empty": the channel holds nothing at this version
	Data    []byte
	// Items, when not nil, replaces Data: the value is a msgpack array of these items, which must not be modified.
	Items [][]byte
	// Some, when not nil, replaces both: of a list of Length items only these were loaded, by their positions. Only PartReader returns it.
	Some   map[int][]byte
	Length int
}

// Write is one pending write of a task on a checkpoint.
type Write struct {
	TaskID  string
	Index   int // negative for the control kinds: -1 __error__, -2 __scheduled__, -3 __interrupt__, -4 __resume__
	Channel string
	Type    string
	Data    []byte
	Path    string // task_path
}

// Checkpoint is one row of `checkpoints`, with its snapshot columns.
type Checkpoint struct {
	Key
	Parent id.Checkpoint // "" for the first
	// Data is the checkpoint as JSON, as langgraph-checkpoint-postgres stores it: `channel_values` holds only
	// values that are null, bool, number or text; all others are in blobs under `channel_versions`.
	Data     json.RawMessage
	Metadata json.RawMessage // object
	Run      id.Run          // the run that wrote it; "" for state updates
	// Tasks and Shape are the description: what only the graph knows about the checkpoint. Tasks is nil when there is none.
	Tasks json.RawMessage // [{"id","name","path":[…],"subgraph":bool}] in the order of LangGraph's tasks
	Shape string          // digest of the Shape below; "" when not described
}

// Tuple is a checkpoint with its values and writes.
type Tuple struct {
	Checkpoint
	Blobs  []Blob  // one for each channel in `channel_versions` that has a row
	Writes []Write // in order of task id and index
	// Left: only Key is set, because the content did not fit into List.Bytes.
	Left bool
}

// Leave makes checkpoints Left.
func Leave(tuples ...*Tuple) {
	for _, t := range tuples {
		*t = Tuple{Checkpoint: Checkpoint{Key: t.Key}, Left: true}
	}
}

// Size is about how many bytes the content of a checkpoint has.
func (t *Tuple) Size() int {
	n := len(t.Data) + len(t.Metadata)
	for i := range t.Blobs {
		n += t.Blobs[i].Size()
	}
	for i := range t.Writes {
		n += len(t.Writes[i].Data)
	}
	return n
}

// Put is a checkpoint that a graph saves.
type Put struct {
	Checkpoint
	Blobs     []Blob          // of the channels that changed
	Folded    []Blob          // whole values of changed delta channels: for recording, not stored
	ShapeJSON json.RawMessage // definition of Shape, with the worker's first use of its digest; nil later
}

// Shape describes a graph at one namespace, once for all of its checkpoints:
//
//	{"out": ["messages", …] | "name",            // stream_channels_asis
//	 "channels": {"messages": {"kind": "BinaryOperatorAggregate", "empty": {"type": "msgpack", "data": "<base64>"} | null}},
//	 "stateful": ["node", …]}                    // subgraph nodes whose checkpointer is True
type Shape = json.RawMessage

// List selects checkpoints of a thread, newest first.
type List struct {
	Thread   id.Thread
	NS       *string         // nil: all namespaces
	Before   id.Checkpoint   // only older ones; "" no bound
	ID       id.Checkpoint   // only this one; "" all
	Metadata json.RawMessage // containment; nil all
	Limit    int             // <= 0: all
	// Bytes bounds what the checkpoints after the first add to the bytes that are loaded: what several share, such as the messages of adjacent
	// checkpoints, counts once. The first that does not fit is Left, and ends the list. <= 0: no bound.
	Bytes int
	// Keys: nothing but Key is loaded.
	Keys bool
}

// Load counts the bytes that checkpoints take in memory together. What they share counts once. The zero value is empty.
type Load struct {
	Bytes int
	seen  map[*byte]struct{} // beginnings of values
}

// Add counts a checkpoint, and returns how many bytes it adds.
func (l *Load) Add(t *Tuple) int {
	before := l.Bytes
	l.value(t.Data)
	l.value(t.Metadata)
	l.value(t.Tasks)
	for i := range t.Blobs {
		b := &t.Blobs[i]
		l.value(b.Data)
		for _, item := range b.Items {
			l.value(item)
		}
	}
	for i := range t.Writes {
		l.value(t.Writes[i].Data)
	}
	return l.Bytes - before
}

func (l *Load) value(data []byte) {
	if len(data) == 0 {
		return
	}
	if l.seen == nil {
		l.seen = map[*byte]struct{}{}
	}
	if _, ok := l.seen[&data[0]]; !ok {
		l.seen[&data[0]] = struct{}{}
		l.Bytes += len(data)
	}
}

// Tx is the part of a storage transaction that saving uses.
type Tx interface {
	// PutCheckpoint inserts the row, its blobs (existing ones stay: same channel and version means same value) and the
	// definition of the shape, if any. An existing checkpoint is replaced, as LangGraph's savers do.
	PutCheckpoint(p *Put) error
	// PutWrites stores writes on a checkpoint under (task, index). Negative indexes replace; others are kept when present.
	PutWrites(k Key, writes []Write) error
	// DeleteRunCheckpoints deletes the checkpoints that the run wrote, in all namespaces, and the writes stored on them. With keepValues
	// their channel values stay, because a run that started from one of them and has saved nothing yet refers to unchanged values by
	// version.
	DeleteRunCheckpoints(t id.Thread, r id.Run, keepValues bool) error
	// Head returns the newest root checkpoint of a thread with its writes, not its blobs, as this transaction has made it; nil when
	// there is none.
	Head(t id.Thread) (*Tuple, error)
}

// Expecting is an optional ability of a Tx: it announces coming puts, so that the Tx reads what they need from the database at once. Results
// do not change.
type Expecting interface {
	ExpectPuts(puts ...*Put)
}

// Reader reads checkpoints. Every method sees committed rows only.
type Reader interface {
	// LoadCheckpoint returns a checkpoint with its blobs and writes: the newest of the namespace when k.ID is empty.
	// nil, nil when there is none.
	LoadCheckpoint(ctx context.Context, k Key) (*Tuple, error)
	// ListCheckpoints returns checkpoints newest first.
	ListCheckpoints(ctx context.Context, q List) ([]*Tuple, error)
	// LoadShape returns a shape by its digest; nil, nil when unknown.
	LoadShape(ctx context.Context, digest string) (Shape, error)
	// LoadAnswer and KeepAnswer read and store answers that were requested from a worker, per checkpoint and key.
	LoadAnswer(ctx context.Context, k Key, key string) (json.RawMessage, error)
	KeepAnswer(ctx context.Context, k Key, key string, answer json.RawMessage) error
}

// Snapshot is a checkpoint as the API shows it.
type Snapshot struct {
	Key                       // ID "" and all else empty: the checkpoint does not exist
	Parent    id.Checkpoint   // "" when none
	Map       json.RawMessage // checkpoint_map of nested namespaces ({"": root id, ns: own id}); nil at the root
	ParentMap json.RawMessage // the same for the parent
	Values    json.RawMessage // object, or a bare value when `out` is one name
	Next      []string
	Tasks     []Task
	Metadata  json.RawMessage
	CreatedAt string // ISO 8601, as the graph wrote it
}

// Task is one entry of a snapshot's tasks.
type Task struct {
	ID         string
	Name       string
	Path       json.RawMessage   // list
	Error      *string           // Python's repr
	Interrupts []json.RawMessage // {id, value[, response_schema]}
	Subgraph   string            // namespace of its subgraph; "" when it has none
	State      *Snapshot         // only with subgraphs=true
	Result     json.RawMessage   // nil: null
}
