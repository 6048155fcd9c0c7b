package python

import (
	"context"
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
)

// Requests of a worker (asks), by op, with the arguments that follow and the value of the answer:
//
//	load    thread, ns, id                                        tuple | nil
//	list    thread, ns | nil, before, id, metadata | nil, limit   [tuple, …]
//	flush                                                         nil
//	put     thread, ns, id, parent, data, metadata, tasks | nil, shape, shape json | nil, [[channel, version, type, data], …]   nil
//	        and, when it has delta channels, their whole values in the same form
//	writes  thread, ns, id, [[task, index, channel, type, data, path], …]   nil
//	store   [operation, …]                                        [result, …]
//	delete  thread                                                nil
//	copy    from, to                                              nil
//
// A tuple is [thread, ns, id, parent, data, metadata, blobs, writes].
//
// Saves (put, writes) are executed in order, in batches of all that wait. All other asks except store wait for the saves before them;
// a flush only waits. Number 0 means without an answer: the worker continues at once, and receives a refused message when a save of
// the call fails. Later saves of the call are then skipped.

// Deleter is implemented by savers that allow graphs to delete a thread's checkpoints through their checkpointer.
type Deleter interface {
	DeleteThread(ctx context.Context, t id.Thread) error
}

// Copier is implemented by savers that allow graphs to copy a thread's checkpoints through their checkpointer.
type Copier interface {
	CopyThread(ctx context.Context, from, to id.Thread) error
}

var errNotSupported = errors.New("not supported by this server")

// backend answers the asks of one call.
type backend struct {
	run   id.Run
	saver graph.Saver
	store graph.Store
	// called receives the model calls of a run; nil: they are not counted.
	called func(graph.ModelCall)
	// tracing receives the spans of a run; nil: none are reported.
	tracing *graph.Tracing
}

// answer executes an ask and appends the value of its answer to b.
func (k *backend) answer(ctx context.Context, b []byte, a *ask) ([]byte, error) {
	d := &decoder{b: a.args}
	if a.op == "store" {
		if k.store == nil {
			return b, errNotSupported
		}
		return k.storeBatch(ctx, b, d)
	}
	if k.saver == nil {
		return b, errNotSupported
	}
	switch a.op {
	case "load":
		key := d.key()
		if d.err != nil {
			return b, d.err
		}
		t, err := k.saver.Load(ctx, key)
		if err != nil {
			return b, err
		}
		return appendTuple(b, t), nil
	case "list":
		q := checkpointer.List{Thread: id.Thread(d.str())}
		if !d.null() {
			ns := d.str()
			q.NS = &ns
		}
		q.Before, q.ID, q.Metadata, q.Limit = id.Checkpoint(d.str()), id.Checkpoint(d.str()), d.bytes(), d.int()
		if d.err != nil {
			return b, d.err
		}
		list, err := k.saver.List(ctx, q)
		if err != nil {
			return b, err
		}
		b = msgp.AppendArrayHeader(b, uint32(len(list)))
		for _, t := range list {
			b = appendTuple(b, t)
		}
		return b, nil
	case "delete":
		thread := id.Thread(d.str())
		s, ok := k.saver.(Deleter)
		if !ok {
			return b, errNotSupported
		}
		return msgp.AppendNil(b), s.DeleteThread(ctx, thread)
	case "copy":
		from, to := id.Thread(d.str()), id.Thread(d.str())
		s, ok := k.saver.(Copier)
		if !ok {
			return b, errNotSupported
		}
		return msgp.AppendNil(b), s.CopyThread(ctx, from, to)
	}
	return b, fmt.Errorf("unknown question %q", a.op)
}

// save decodes an ask that is a save or a flush, which saves nothing; ok is false for other asks.
func (k *backend) save(a *ask) (sv graph.Save, ok bool, err error) {
	d := &decoder{b: a.args}
	switch a.op {
	case "put":
		if sv.Put, err = readPut(d); err == nil {
			sv.Put.Run = k.run
		}
	case "writes":
		sv.At, sv.Writes = d.key(), readWrites(d)
		err = d.err
	case "flush":
	default:
		return sv, false, nil
	}
	if err == nil && k.saver == nil {
		err = errNotSupported
	}
	return sv, true, err
}

func (d *decoder) key() checkpointer.Key {
	return checkpointer.Key{Thread: id.Thread(d.str()), NS: d.str(), ID: id.Checkpoint(d.str())}
}

func readPut(d *decoder) (*checkpointer.Put, error) {
	p := &checkpointer.Put{}
	p.Key = d.key()
	p.Parent = id.Checkpoint(d.str())
	p.Data, p.Metadata, p.Tasks = d.bytes(), d.bytes(), d.bytes()
	p.Shape, p.ShapeJSON = d.str(), d.bytes()
	p.Blobs = readBlobs(d)
	if d.err == nil && len(d.b) > 0 {
		p.Folded = readBlobs(d)
	}
	return p, d.err
}

func readBlobs(d *decoder) []checkpointer.Blob {
	var out []checkpointer.Blob
	for range d.array() {
		if n := d.array(); n != 4 {
			d.err = errBadMessage
			return nil
		}
		out = append(out, checkpointer.Blob{Channel: d.str(), Version: d.str(), Type: d.str(), Data: d.bytes()})
		if d.err != nil {
			return nil
		}
	}
	return out
}

func readWrites(d *decoder) []checkpointer.Write {
	var out []checkpointer.Write
	for range d.array() {
		if n := d.array(); n != 6 {
			d.err = errBadMessage
			return nil
		}
		out = append(out, checkpointer.Write{
			TaskID: d.str(), Index: d.int(), Channel: d.str(), Type: d.str(), Data: d.bytes(), Path: d.str(),
		})
		if d.err != nil {
			return nil
		}
	}
	return out
}

func appendTuple(b []byte, t *checkpointer.Tuple) []byte {
	if t == nil {
		return msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(b, 8)
	b = msgp.AppendString(b, string(t.Thread))
	b = msgp.AppendString(b, t.NS)
	b = msgp.AppendString(b, string(t.ID))
	b = msgp.AppendString(b, string(t.Parent))
	b = msgp.AppendBytes(b, t.Data)
	b = msgp.AppendBytes(b, t.Metadata)
	b = msgp.AppendArrayHeader(b, uint32(len(t.Blobs)))
	for _, v := range t.Blobs {
		b = msgp.AppendArrayHeader(b, 3)
		b = msgp.AppendString(b, v.Channel)
		b = msgp.AppendString(b, v.Type)
		b = v.AppendTo(msgp.AppendBytesHeader(b, uint32(v.Size())))
	}
	b = msgp.AppendArrayHeader(b, uint32(len(t.Writes)))
	for _, w := range t.Writes {
		b = msgp.AppendArrayHeader(b, 6)
		b = msgp.AppendString(b, w.TaskID)
		b = msgp.AppendInt(b, w.Index)
		b = msgp.AppendString(b, w.Channel)
		b = msgp.AppendString(b, w.Type)
		b = msgp.AppendBytes(b, w.Data)
		b = msgp.AppendString(b, w.Path)
	}
	return b
}

func (k *backend) storeBatch(ctx context.Context, b []byte, d *decoder) ([]byte, error) {
	var ops []graph.StoreOp
	for range d.array() {
		d.array()
		switch op := d.str(); op {
		case "get":
			ops = append(ops, graph.StoreOp{Get: &graph.StoreGet{Namespace: d.strs(), Key: d.str(), Refresh: d.boolOrNull()}})
		case "put":
			ops = append(ops, graph.StoreOp{Put: &graph.StorePut{Namespace: d.strs(), Key: d.str(), Value: d.bytes(), TTL: d.float(), Index: d.bytes()}})
		case "search":
			ops = append(ops, graph.StoreOp{Search: &graph.StoreSearch{
				Prefix: d.strs(), Filter: d.bytes(), Query: d.str(), Limit: d.int(), Offset: d.int(), Refresh: d.boolOrNull(),
			}})
		case "list":
			ops = append(ops, graph.StoreOp{List: &graph.StoreList{
				Prefix: d.strs(), Suffix: d.strs(), MaxDepth: d.int(), Limit: d.int(), Offset: d.int(),
			}})
		default:
			return b, fmt.Errorf("unknown store operation %q", op)
		}
		if d.err != nil {
			return b, d.err
		}
	}
	results, err := k.store.Batch(ctx, ops)
	if err != nil {
		return b, err
	}
	if len(results) != len(ops) {
		return b, fmt.Errorf("the store gave %d results for %d operations", len(results), len(ops))
	}
	b = msgp.AppendArrayHeader(b, uint32(len(ops)))
	for i, op := range ops {
		r := &results[i]
		switch {
		case op.Get != nil && r.Item != nil:
			b = appendItem(b, r.Item)
		case op.Search != nil:
			b = msgp.AppendArrayHeader(b, uint32(len(r.Items)))
			for j := range r.Items {
				b = appendItem(b, r.Items[j])
			}
		case op.List != nil:
			b = msgp.AppendArrayHeader(b, uint32(len(r.Namespaces)))
			for _, ns := range r.Namespaces {
				b = appendStrings(b, ns)
			}
		default:
			b = msgp.AppendNil(b)
		}
	}
	return b, nil
}

// timeLayout is ISO 8601 with microseconds, as Python reads it.
const timeLayout = "2006-01-02T15:04:05.000000-07:00"

func appendItem(b []byte, it *graph.StoreItem) []byte {
	b = msgp.AppendArrayHeader(b, 6)
	b = appendStrings(b, it.Namespace)
	b = msgp.AppendString(b, it.Key)
	b = msgp.AppendBytes(b, it.Value)
	b = msgp.AppendString(b, it.CreatedAt.UTC().Format(timeLayout))
	b = msgp.AppendString(b, it.UpdatedAt.UTC().Format(timeLayout))
	if it.Score == nil {
		return msgp.AppendNil(b)
	}
	return msgp.AppendFloat64(b, *it.Score)
}

func appendStrings(b []byte, list []string) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(list)))
	for _, s := range list {
		b = msgp.AppendString(b, s)
	}
	return b
}
