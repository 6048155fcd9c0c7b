package transfer

import (
	"context"
	"errors"
	"fmt"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/store"
)

// Exporter exports conversations to LangGraph's tables.
type Exporter struct {
	Source Source // this server's storage
	// Progress receives the progress. nil: none.
	Progress Progress
}

// Run writes every thread and store item that the sink does not have, and reads everything back.
// Errors are as those of Importer.Run.
func (x *Exporter) Run(ctx context.Context, to Sink) (*Result, error) {
	if x.Progress == nil {
		x.Progress = silent{}
	}
	j := newJob()
	total, err := x.Source.CountThreads(ctx)
	if err != nil {
		return nil, err
	}
	begin := func() error { // once something can be read, so that nothing is written and no number shown otherwise
		if err := to.Prepare(ctx); err != nil {
			return err
		}
		x.Progress.Begin("threads", total)
		return nil
	}
	empty, begun := 0, false
	for t, err := range x.Source.Threads(ctx) {
		if err != nil {
			return nil, fmt.Errorf("threads: %w", err)
		}
		if !begun {
			if err := begin(); err != nil {
				return nil, err
			}
			begun = true
		}
		moved, err := x.thread(ctx, j, t, to)
		if err != nil {
			if ctx.Err() != nil || fatal(err) {
				return nil, fmt.Errorf("thread %s: %w", t.Key, err)
			}
			j.problem("thread "+t.Key, err)
		} else if !moved {
			empty++
		}
		x.Progress.Step(t.Key)
	}
	if !begun {
		if err := begin(); err != nil {
			return nil, err
		}
	}
	x.Progress.End()
	if empty > 0 {
		j.notes = append(j.notes, fmt.Sprintf("%d threads have no checkpoint: LangGraph's tables have no place for them", empty))
	}
	if err := x.items(ctx, j, to); err != nil {
		return nil, err
	}
	return j.finish(append(x.Source.Notes(), to.Notes()...)), nil
}

// thread exports one thread; false when it has nothing to store in LangGraph's tables.
func (x *Exporter) thread(ctx context.Context, j *job, t *Thread, to Sink) (bool, error) {
	name := t.Key
	if t.Row != nil {
		// It is exported under its original name.
		if was := jsonobj.Of(t.Row.Metadata).Text(original); was != "" {
			name = was
		}
	}
	from, err := x.Source.History(ctx, t)
	if err != nil {
		return false, err
	}
	defer from.Close()
	links := parentsFirst(from.Links())
	if len(links) == 0 {
		return false, nil
	}
	there := &Thread{Key: name}
	h, err := to.History(ctx, there)
	if err != nil {
		return false, err
	}
	have := h.Links()
	if shared := countShared(links, have); shared < len(links) && shared < len(have) {
		return false, fmt.Errorf("it continued in both places since the export (%d checkpoints only here, %d only there): delete it there to export it again",
			len(links)-shared, len(have)-shared)
	}
	wanted, err := x.send(ctx, j, name, from, links, have, to)
	if err != nil {
		return false, err
	}
	if len(have) < len(links) {
		j.result.Threads.New++
	} else {
		j.result.Threads.Known++
	}
	// Read back in the same way as an import.
	if h, err = to.History(ctx, there); err != nil {
		return false, err
	}
	if err := wanted.readBack(ctx, h, parentsFirst(h.Links())); err != nil {
		return false, err
	}
	j.compared(wanted.total())
	return true, nil
}

// send writes the checkpoints of links, in batches, to the thread that is called name in the target and has the checkpoints have there.
// It returns the sums of all of links.
func (x *Exporter) send(ctx context.Context, j *job, name string, from History, links, have []Link, to Sink) (*sums, error) {
	known := places(have)
	ahead := len(have) > countShared(links, have)
	wanted := newSums()
	b := batch{write: func(steps []*Step) error { return to.Put(ctx, name, steps) }}
	err := from.Read(ctx, links, func(p *Step) error {
		p.Metadata = rename(p.Metadata, name)
		if err := wanted.add(p); err != nil {
			return err
		}
		if _, ok := known[place{p.NS, p.ID}]; ok {
			j.result.Checkpoints.Known++
			j.result.Writes.Known += len(p.Writes)
			if ahead || len(p.Writes) == 0 {
				return nil // later writes are of the target
			}
		} else {
			j.result.Checkpoints.New++
			j.result.Writes.New += len(p.Writes)
		}
		own := *p
		return b.add(&own)
	})
	if err != nil {
		return nil, err
	}
	return wanted, b.flush()
}

func (x *Exporter) items(ctx context.Context, j *job, to Sink) error {
	x.Progress.Begin("store items", -1)
	defer x.Progress.End()
	for i, err := range x.Source.Items(ctx) {
		if err != nil {
			return fmt.Errorf("store items: %w", err)
		}
		if err := x.item(ctx, j, i, to); err != nil {
			if ctx.Err() != nil || fault.Is(err, fault.Unavailable) {
				return err
			}
			j.problem(itemName(i), err)
		}
		x.Progress.Step(i.Key)
	}
	return nil
}

func (x *Exporter) item(ctx context.Context, j *job, i *store.Item, to Sink) error {
	d := digestItem(i)
	was, err := to.Item(ctx, i.Namespace, i.Key)
	if err != nil {
		return err
	}
	j.compared(d)
	if was != nil && digestItem(was) == d {
		j.result.Items.Known++
		return nil
	}
	if err := to.PutItems(ctx, []*store.Item{i}); err != nil {
		return err
	}
	j.result.Items.New++
	if was, err = to.Item(ctx, i.Namespace, i.Key); err != nil {
		return err
	}
	if was == nil || digestItem(was) != d {
		return errors.New("what was read back differs")
	}
	return nil
}
