package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/names"
	"understudy/internal/shell"
	"understudy/thread"
)

// GraphNames are the names that graphs of a source have here, by their names there.
type GraphNames map[string]string

// Check refuses names that depend on the order in which they are applied.
func (n GraphNames) Check() error {
	for was, is := range n {
		if was == "" || is == "" {
			return errors.New("the name of a graph is empty")
		}
		if _, also := n[is]; also {
			return fmt.Errorf("%q is renamed to %q, which is renamed as well", was, is)
		}
	}
	return nil
}

// in renames the graph that an object names, with its default assistant. It reports whether something changed.
func (n GraphNames) in(o *jsonobj.Object) bool {
	was := o.Text("graph_id")
	is, ok := n[was]
	if !ok {
		return false
	}
	o.SetText("graph_id", is)
	if o.Text("assistant_id") == string(id.DefaultAssistant(was)) {
		o.SetText("assistant_id", string(id.DefaultAssistant(is)))
	}
	return true
}

// metadata returns metadata of a thread or a checkpoint with the names that are used here.
func (n GraphNames) metadata(raw []byte) []byte {
	if o := jsonobj.Of(raw); n.in(o) {
		return o.JSON()
	}
	return raw
}

// row renames the graph in the row of a thread.
func (n GraphNames) row(t *thread.Thread) {
	t.Metadata = n.metadata(t.Metadata)
	config := jsonobj.Of(t.Config)
	if configurable := jsonobj.Of(config.Get("configurable")); n.in(configurable) {
		config.Set("configurable", configurable.JSON())
		t.Config = config.JSON()
	}
}

// assistant returns an assistant of a graph with the name that the graph has here.
func (n GraphNames) assistant(a *assistant.Assistant) *assistant.Assistant {
	is, ok := n[a.GraphID]
	if !ok {
		return a
	}
	own := *a
	own.GraphID = is
	return &own
}

// sourceGraph returns the graph that a source says a thread has; if it has no rows of threads, the one that the thread has here.
func sourceGraph(t *Thread, here string) string {
	if t.Row == nil {
		return here
	}
	return graphOf(t.Row.Metadata)
}

// unusedNames notes names of m.Rename that nothing in the source has, which may be misspelled.
func (m *Importer) unusedNames() (notes []string) {
	for _, was := range slices.Sorted(maps.Keys(m.Rename)) {
		if m.graphs[was] || m.graphs[m.Rename[was]] {
			continue
		}
		delete(m.graphs, "")
		note := fmt.Sprintf("--rename %s: no thread or assistant of the source has the graph %q", shell.Quote(was+"="+m.Rename[was]), was)
		if len(m.graphs) > 0 {
			note += "; there are " + names.Some(slices.Sorted(maps.Keys(m.graphs)), 20)
		}
		notes = append(notes, note)
	}
	return notes
}

// renameHere gives a thread that was moved earlier, and its checkpoints, the names of m.Rename. It returns its row, and whether something changed.
func (m *Importer) renameHere(ctx context.Context, row *thread.Thread) (_ *thread.Thread, changed bool, err error) {
	h, err := openOwn(ctx, m.Target, row.ID)
	if err != nil {
		return nil, false, err
	}
	b := batch{write: func(steps []*Step) error {
		changed = true
		return m.write(ctx, row.ID, func(tx thread.Tx, _ *thread.Thread) error {
			for _, p := range steps {
				if err := tx.PutCheckpoint(&p.Put); err != nil {
					return err
				}
			}
			return nil
		})
	}}
	if err := h.Read(ctx, h.links, func(p *Step) error {
		own := *p
		if own.Metadata = m.Rename.metadata(p.Metadata); string(own.Metadata) == string(p.Metadata) {
			return nil
		}
		return b.add(&own)
	}); err != nil {
		return nil, false, err
	}
	if err := b.flush(); err != nil {
		return nil, false, err
	}
	own := *row
	if m.Rename.row(&own); string(own.Metadata) == string(row.Metadata) && string(own.Config) == string(row.Config) {
		return row, changed, nil
	}
	return &own, true, m.write(ctx, row.ID, func(tx thread.Tx, now *thread.Thread) error {
		own = *now // a run may have begun and ended since row was read
		m.Rename.row(&own)
		return tx.UpdateThread(&own)
	})
}

// errChanged: what is here changed between its read and the write of the import.
var errChanged = fault.New(fault.Conflict, "it changed here meanwhile; import it again")

// write changes a thread that is here, unless a run of it is active. change gets its row.
func (m *Importer) write(ctx context.Context, t id.Thread, change func(tx thread.Tx, now *thread.Thread) error) error {
	return m.Target.Write(ctx, func(tx thread.Tx) error {
		now, err := tx.Thread(t)
		if err != nil {
			return err
		}
		if now.Status == thread.Busy {
			return fault.New(fault.Conflict, "it has an active run here")
		}
		return change(tx, now)
	})
}
