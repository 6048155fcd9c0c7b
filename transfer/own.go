package transfer

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/store"
	"understudy/thread"
)

// Storage is this server's own storage, read as a Source.
type Storage struct {
	name       string
	rows       Target
	assistants assistant.Store
	notes      []string
}

var (
	_ Source          = (*Storage)(nil)
	_ AssistantSource = (*Storage)(nil)
	_ LogSource       = (*Storage)(nil)
)

// NewStorage returns a Source of this program's storage. notes list what is left out. Close does
// not close the storage.
func NewStorage(name string, rows Target, assistants assistant.Store, notes ...string) *Storage {
	return &Storage{name, rows, assistants, notes}
}

const (
	// pageSize is how many threads or items are read at once, and pageBytes their size with all but
	// the last. Larger ones come alone.
	pageSize  = 200
	pageBytes = 4 << 20
)

// Name is Source.Name.
func (o *Storage) Name() string { return o.name }

// Notes is Source.Notes.
func (o *Storage) Notes() []string { return o.notes }

// Close is Source.Close.
func (o *Storage) Close() error { return nil }

// CountThreads is Source.CountThreads.
func (o *Storage) CountThreads(ctx context.Context) (int, error) {
	return o.rows.CountThreads(ctx, thread.Query{})
}

// Threads is Source.Threads.
func (o *Storage) Threads(ctx context.Context) iter.Seq2[*Thread, error] {
	return func(yield func(*Thread, error) bool) {
		for after := id.Thread(""); ; {
			page, err := o.rows.ThreadsAfter(ctx, after, pageSize, pageBytes)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, t := range page {
				if after = t.ID; !yield(&Thread{Key: string(t.ID), Row: t}, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

// History is Source.History.
func (o *Storage) History(ctx context.Context, t *Thread) (History, error) {
	return openOwn(ctx, o.rows, id.Thread(t.Key))
}

// Log is LogSource.Log.
func (o *Storage) Log(ctx context.Context, t *Thread) (*Log, error) {
	return o.rows.Log(ctx, id.Thread(t.Key))
}

// Items is Source.Items.
func (o *Storage) Items(ctx context.Context) iter.Seq2[*store.Item, error] {
	return func(yield func(*store.Item, error) bool) {
		for last := (&store.Item{}); ; {
			page, err := o.rows.ItemsAfter(ctx, last.Namespace, last.Key, pageSize, pageBytes)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, i := range page {
				if last = i; !yield(i, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

// Assistants is AssistantSource.Assistants.
func (o *Storage) Assistants(ctx context.Context) iter.Seq2[Assistant, error] {
	return func(yield func(Assistant, error) bool) {
		all, err := o.assistants.Assistants(ctx, assistant.Query{Ascending: true})
		if err != nil {
			yield(Assistant{}, err)
			return
		}
		for _, a := range all {
			versions, err := o.assistants.Versions(ctx, a.ID, nil, 0, 0)
			if err != nil {
				yield(Assistant{}, err)
				return
			}
			slices.Reverse(versions) // they come highest first
			if !yield(Assistant{a, versions}, nil) {
				return
			}
		}
	}
}

// ownHistory is the checkpoints of a thread in this server's storage.
type ownHistory struct {
	rows   Target
	thread id.Thread
	links  []Link
}

func openOwn(ctx context.Context, rows Target, t id.Thread) (*ownHistory, error) {
	links, err := rows.Links(ctx, t)
	if err != nil {
		return nil, err
	}
	return &ownHistory{rows, t, links}, nil
}

func (h *ownHistory) Links() []Link { return h.links }
func (h *ownHistory) Close() error  { return nil }

const (
	// readSteps is how many checkpoints are read at once, because they share unchanged values.
	readSteps = 16
	// readBytes bounds what those after the first add.
	readBytes = 4 << 20
)

func (h *ownHistory) Read(ctx context.Context, links []Link, fn func(*Step) error) error {
	for len(links) > 0 {
		some := links[:min(len(links), readSteps)]
		tuples, err := h.rows.Checkpoints(ctx, h.thread, some, readBytes) // one deleted meanwhile is reported as missing
		if err != nil {
			return err
		}
		links = links[len(some):]
		for i, tuple := range tuples {
			if tuple.Left {
				n := slices.IndexFunc(some, func(l Link) bool { return l.NS == tuple.NS && l.ID == tuple.ID })
				links = some[n:cap(some)]
				break
			}
			tuples[i] = nil
			step := &Step{Put: checkpointer.Put{Checkpoint: tuple.Checkpoint, Blobs: tuple.Blobs}, Writes: tuple.Writes}
			if step.Shape != "" {
				if step.ShapeJSON, err = h.rows.LoadShape(ctx, step.Shape); err != nil {
					return fmt.Errorf("shape of checkpoint %s: %w", tuple.ID, err)
				}
			}
			if err := fn(step); err != nil {
				return err
			}
		}
	}
	return nil
}

// original is the metadata key of a thread's name in the source, if that was not a UUID.
const original = "original_thread_id"

// rename replaces the thread's name in the metadata of a checkpoint.
func rename(metadata []byte, to string) []byte {
	o := jsonobj.Of(metadata)
	if o.Text("thread_id") == "" || o.Text("thread_id") == to {
		return metadata
	}
	o.SetText("thread_id", to)
	return o.JSON()
}
