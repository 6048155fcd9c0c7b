package checkpointer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Explainer asks a graph for facts about a checkpoint that rows do not contain. live: as the head of its namespace is
// shown when read without an id. It runs no node.
type Explainer interface {
	Explain(ctx context.Context, k Key, live bool) (Explanation, error)
}

// Explanation is a graph's answer about a checkpoint.
type Explanation struct {
	Values json.RawMessage
	Next   []string
	Tasks  json.RawMessage // as Checkpoint.Tasks
	Shape  string          // digest
	// ShapeJSON is the definition of Shape; nil when the graph has sent it before.
	ShapeJSON Shape
}

// HeadReader is an optional ability of a Reader: checkpoints without their blobs, for callers that do not use values.
type HeadReader interface {
	// LoadHead is LoadCheckpoint, but leaves Blobs empty.
	LoadHead(ctx context.Context, k Key) (*Tuple, error)
}

// HeadInfo is the content of a thread's row for its newest root checkpoint, except values.
type HeadInfo struct {
	ID         id.Checkpoint   // "": the thread has no checkpoint
	Next       []string        // every task of the step, finished ones included
	Interrupts json.RawMessage // {task id: [{id, value}]} of the tasks that wait; never nil
	Metadata   json.RawMessage
}

// Snapshots composes checkpoints as the API shows them from stored rows, and asks the graph only for missing facts. It is
// safe for concurrent use.
type Snapshots struct {
	// Log receives a line when no graph was available and only rows were used. nil: none. Set it before use.
	Log *slog.Logger

	rows     Reader
	ask      Explainer
	values   *valueCache
	asking   singleflight.Group
	shapes   sync.Map // digest -> *shape, of stored shapes
	answered sync.Map // digest -> Shape, of those only in answers
}

// DefaultCacheBytes limits the JSON of values that Snapshots keep in memory.
const DefaultCacheBytes = 64 << 20

// NewSnapshots makes Snapshots of the checkpoints in r. ask may be nil: then rows are all there is.
func NewSnapshots(r Reader, ask Explainer) *Snapshots {
	return &Snapshots{rows: r, ask: ask, values: newValueCache(DefaultCacheBytes)}
}

// State returns the live head of a namespace when k.ID is empty, else the record of that checkpoint. subgraphs adds the live
// heads of nested namespaces. There is no such checkpoint: a Snapshot with k, empty values and nothing else.
func (s *Snapshots) State(ctx context.Context, k Key, subgraphs bool) (*Snapshot, error) {
	if k.ID == "" {
		return s.head(ctx, k, subgraphs)
	}
	t, err := s.load(ctx, k)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nothing(k), nil
	}
	return s.compose(ctx, t, view{deep: subgraphs})
}

// head returns the live head of a namespace. While a graph was asked about it a run may have gone on: then it is composed anew,
// for rows of one moment and an answer of another make a state that never was. A run that never rests is not waited for.
func (s *Snapshots) head(ctx context.Context, k Key, deep bool) (*Snapshot, error) {
	const attempts = 3
	for i := 1; ; i++ {
		t, err := s.load(ctx, k)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nothing(k), nil
		}
		out, err := s.compose(ctx, t, view{live: true, deep: deep, moving: i == attempts})
		if !errors.Is(err, errMoved) {
			return out, err
		}
	}
}

// load loads a checkpoint. A subgraph that keeps one history per thread has it under its namespace without task ids, and
// can be addressed with them as well.
func (s *Snapshots) load(ctx context.Context, k Key) (*Tuple, error) {
	t, err := s.rows.LoadCheckpoint(ctx, k)
	if err != nil || t != nil || !strings.Contains(k.NS, ":") {
		return t, err
	}
	k.NS = withoutTaskIDs(k.NS)
	return s.rows.LoadCheckpoint(ctx, k)
}

// Values returns the values of a checkpoint's record; of the newest one when k.ID is empty. nil when there is none.
func (s *Snapshots) Values(ctx context.Context, k Key) (json.RawMessage, error) {
	t, err := s.load(ctx, k)
	if err != nil || t == nil {
		return nil, err
	}
	c, err := s.content(ctx, t, view{})
	if err != nil {
		return nil, err
	}
	return s.valuesOf(t, c), nil
}

// Head returns the data of the newest root checkpoint for a thread's row. It does not convert values, and does not load them
// when the storage is a HeadReader.
func (s *Snapshots) Head(ctx context.Context, thread id.Thread) (HeadInfo, error) {
	t, err := s.bare(ctx, Key{Thread: thread})
	if err != nil {
		return HeadInfo{}, err
	}
	info, err := s.HeadOf(t)
	if !errors.Is(err, ErrUndescribed) {
		return info, err
	}
	c, err := s.content(ctx, t, view{})
	if err != nil {
		return info, err
	}
	return s.headInfo(t, c.tasks), nil
}

// ErrUndescribed: the checkpoint has no description, so that only its graph knows the next tasks.
var ErrUndescribed = errors.New("the checkpoint has no description")

// ErrLost: parts of a list in a checkpoint are missing, as in what was copied from a damaged database.
var ErrLost = fault.New(fault.Lost, "A part of the state of this thread is lost, because its database was damaged. GET /threads/{thread_id}/messages has what is left of its messages. Restore a backup, or delete the thread.")

// HeadOf is Head for a loaded checkpoint, from its description and writes; t is nil when there is none. It returns
// ErrUndescribed when only the graph knows, which Head calls.
func (s *Snapshots) HeadOf(t *Tuple) (HeadInfo, error) {
	if t == nil {
		return HeadInfo{Next: []string{}, Interrupts: json.RawMessage("{}")}, nil
	}
	if t.Tasks == nil {
		return HeadInfo{}, ErrUndescribed
	}
	var tasks []taskInfo
	if err := json.Unmarshal(t.Tasks, &tasks); err != nil {
		return HeadInfo{}, fmt.Errorf("description of %s: %w", describeKey(t.Key), err)
	}
	return s.headInfo(t, tasks), nil
}

func (s *Snapshots) headInfo(t *Tuple, tasks []taskInfo) HeadInfo {
	info := HeadInfo{ID: t.ID, Metadata: t.Metadata, Next: []string{}}
	waiting := []byte{'{'}
	for _, task := range tasks {
		if task.Name != "" { // else only its graph knows it
			info.Next = append(info.Next, task.Name)
		}
		// An interrupt that was answered is no longer waiting, although the record of the step shows it.
		p := progressOf(t.Writes, task.ID)
		if p.finished || len(p.interrupts) == 0 {
			continue
		}
		if len(waiting) > 1 {
			waiting = append(waiting, ',')
		}
		waiting = append(jsonobj.AppendText(waiting, task.ID), ':', '[')
		for i, one := range s.interrupts(p) {
			if i > 0 {
				waiting = append(waiting, ',')
			}
			waiting = append(waiting, one...)
		}
		waiting = append(waiting, ']')
	}
	info.Interrupts = append(waiting, '}')
	return info
}

// bare loads a checkpoint, without its blobs where the storage can.
func (s *Snapshots) bare(ctx context.Context, k Key) (*Tuple, error) {
	if h, ok := s.rows.(HeadReader); ok {
		return h.LoadHead(ctx, k)
	}
	return s.rows.LoadCheckpoint(ctx, k)
}

// nothing is the snapshot of a checkpoint that does not exist.
func nothing(k Key) *Snapshot {
	return &Snapshot{Key: k, Values: json.RawMessage("{}"), Next: []string{}, Tasks: []Task{}}
}

// withoutTaskIDs takes the task ids out of a namespace. Parts that count repeated calls stay.
func withoutTaskIDs(ns string) string {
	parts := strings.Split(ns, "|")
	for i, p := range parts {
		parts[i], _, _ = strings.Cut(p, ":")
	}
	return strings.Join(parts, "|")
}

func (s *Snapshots) warn(ctx context.Context, text string, t *Tuple, err error) {
	if s.Log != nil {
		s.Log.WarnContext(ctx, text, "thread_id", t.Thread, "checkpoint_ns", t.NS, "checkpoint_id", t.ID, "error", err)
	}
}

func describeKey(k Key) string {
	return fmt.Sprintf("checkpoint %s of thread %s, namespace %q", k.ID, k.Thread, k.NS)
}
