package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
)

// errMoved reports that the thread changed after an update of it was computed.
var errMoved = errors.New("the thread has changed while its update was computed")

// draft is the graph.Saver of one state update. It buffers what the graph saves and notes which heads the graph read, so that one
// transaction can check that these are still the heads and commit everything. Until then nothing is stored. Calls may run concurrently.
type draft struct {
	store Store
	at    checkpointer.Key // start of the update

	mu     sync.Mutex
	saves  []graph.Save
	puts   map[checkpointer.Key]*checkpointer.Put
	newest map[string]id.Checkpoint // of puts, by namespace
	writes map[checkpointer.Key][]checkpointer.Write
	blobs  map[blobKey]checkpointer.Blob      // of puts and loaded checkpoints
	reads  map[checkpointer.Key]id.Checkpoint // checkpoint of a key when it was read; "": none
	moved  bool                               // a key had different checkpoints at different times
}

type blobKey struct{ ns, channel, version string }

var _ graph.Saver = (*draft)(nil)

func newDraft(store Store, at checkpointer.Key) *draft {
	return &draft{
		store: store, at: at, puts: map[checkpointer.Key]*checkpointer.Put{}, newest: map[string]id.Checkpoint{},
		writes: map[checkpointer.Key][]checkpointer.Write{}, blobs: map[blobKey]checkpointer.Blob{}, reads: map[checkpointer.Key]id.Checkpoint{},
	}
}

// note records the checkpoint that a key resolved to. Ancestors, which are read by their ids, do not change: only heads and the start are
// checked.
func (d *draft) note(k checkpointer.Key, found id.Checkpoint) {
	if k.ID != "" && k.ID != d.at.ID {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if before, ok := d.reads[k]; ok && before != found {
		d.moved = true
	}
	d.reads[k] = found
}

// Load implements graph.Saver. It also finds checkpoints saved through the draft.
func (d *draft) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	if t := d.drafted(k); t != nil {
		return t, nil
	}
	t, err := d.store.LoadCheckpoint(ctx, k)
	if err != nil {
		return nil, err
	}
	d.note(k, idOf(t))
	return d.known(t), nil
}

// known remembers the values of a stored checkpoint and adds the writes that the draft has for it.
func (d *draft) known(t *checkpointer.Tuple) *checkpointer.Tuple {
	if t == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range t.Blobs {
		d.blobs[blobKey{t.NS, b.Channel, b.Version}] = b
	}
	if added := d.writes[t.Key]; len(added) > 0 {
		with := *t
		with.Writes = merged(t.Writes, added)
		return &with
	}
	return t
}

// drafted returns a checkpoint that was saved through the draft; nil when k is none of these.
func (d *draft) drafted(k checkpointer.Key) *checkpointer.Tuple {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k.ID == "" {
		k.ID = d.newest[k.NS]
	}
	if p := d.puts[k]; p != nil {
		return d.tuple(p)
	}
	return nil
}

// tuple returns a saved checkpoint as the storage would. The caller holds d.mu.
func (d *draft) tuple(p *checkpointer.Put) *checkpointer.Tuple {
	t := &checkpointer.Tuple{Checkpoint: p.Checkpoint, Writes: merged(nil, d.writes[p.Key])}
	gjson.GetBytes(p.Data, "channel_versions").ForEach(func(channel, version gjson.Result) bool {
		if b, ok := d.blobs[blobKey{p.NS, channel.String(), version.String()}]; ok {
			t.Blobs = append(t.Blobs, b)
		}
		return true
	})
	return t
}

// mapOf returns the checkpoint_map of a checkpoint that was saved through the draft; nil when it has none.
func (d *draft) mapOf(k checkpointer.Key) json.RawMessage {
	t := d.drafted(k)
	if t == nil {
		return nil
	}
	own, _ := checkpointer.Maps(t)
	return own
}

// List is graph.Saver.List.
func (d *draft) List(ctx context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	stored, err := d.store.ListCheckpoints(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]*checkpointer.Tuple, 0, len(stored))
	for _, t := range stored {
		out = append(out, d.known(t))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.puts {
		if p.Thread == q.Thread && (q.NS == nil || p.NS == *q.NS) && (q.Before == "" || p.ID < q.Before) && (q.ID == "" || p.ID == q.ID) && match.Match(p.Metadata) {
			out = append(out, d.tuple(p))
		}
	}
	slices.SortStableFunc(out, func(a, b *checkpointer.Tuple) int {
		if a.ID != b.ID {
			return strings.Compare(string(b.ID), string(a.ID))
		}
		return strings.Compare(a.NS, b.NS)
	})
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out, nil
}

// Save is graph.Saver.Save, except that nothing is committed.
func (d *draft) Save(_ context.Context, saves ...graph.Save) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, sv := range saves {
		if p := sv.Put; p != nil {
			d.puts[p.Key] = p
			d.newest[p.NS] = max(d.newest[p.NS], p.ID)
			for _, b := range p.Blobs {
				if k := (blobKey{p.NS, b.Channel, b.Version}); d.blobs[k].Version == "" { // the same version means the same value
					d.blobs[k] = b
				}
			}
		} else {
			d.writes[sv.At] = append(d.writes[sv.At], sv.Writes...)
		}
		d.saves = append(d.saves, sv)
	}
	return nil
}

// merged returns writes after others were added, as checkpointer.Tx.PutWrites adds them.
func merged(writes, added []checkpointer.Write) []checkpointer.Write {
	out := slices.Clone(writes)
	for _, w := range added {
		i := slices.IndexFunc(out, func(o checkpointer.Write) bool { return o.TaskID == w.TaskID && o.Index == w.Index })
		switch {
		case i < 0:
			out = append(out, w)
		case w.Index < 0:
			out[i] = w
		}
	}
	slices.SortStableFunc(out, func(a, b checkpointer.Write) int {
		if a.TaskID != b.TaskID {
			return strings.Compare(a.TaskID, b.TaskID)
		}
		return a.Index - b.Index
	})
	return out
}

// holds checks within a transaction that every key still resolves to the same checkpoint as when the graph read it;
// errMoved otherwise.
func (d *draft) holds(tx Tx) error {
	if d.moved {
		return errMoved
	}
	for k, was := range d.reads {
		found, err := tx.Find(k)
		if err != nil {
			return fmt.Errorf("look for checkpoint %s of thread %s: %w", k.ID, k.Thread, err)
		}
		if found != was {
			return errMoved
		}
	}
	return nil
}
