package relational

import (
	"errors"
	"math"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

var (
	marksOf     = same("SELECT seq, metadata, run_id FROM events WHERE thread_id = $1 ORDER BY seq")
	nodeNumbers = same("SELECT checkpoint_id, node FROM transcripts WHERE thread_id = $1")
)

// interrupt is the channel of a write that asks.
const interrupt = "__interrupt__"

// Fork is what a fork takes of the rows of its source. nil takes everything.
type Fork struct {
	seq         eventstore.Seq
	at          id.Checkpoint // "": it has no checkpoint
	leaf        bool          // nothing follows it: its writes are still pending
	node        int64         // the last that its transcripts are made of
	checkpoints map[checkpointName]bool
	values      map[valueName]bool
	parts       compact.Set
	without     map[string]bool
}

type checkpointName struct {
	ns string
	id id.Checkpoint
}

type valueName struct {
	ns string
	rows.ChannelVersion
}

// PlanFork chooses what a fork of a thread takes; nil for a copy. q is a snapshot.
func PlanFork(db DB, q Querier, t id.Thread, at *thread.Fork) (*Fork, error) {
	if at == nil {
		return nil, nil
	}
	f := &Fork{seq: at.Seq, checkpoints: map[checkpointName]bool{}, values: map[valueName]bool{}, without: map[string]bool{}}
	for _, c := range at.Without {
		f.without[c] = true
	}
	marks, err := all(q, marksOf, scanMark, t)
	if err != nil {
		return nil, err
	}
	var found []rows.PruneRow // newest first in each namespace
	if err := q.Query(PruneRows, func(r Row) error {
		versions, err := rows.ChannelVersions(r.Bytes(4))
		found = append(found, rows.PruneRow{NS: r.Text(0), ID: id.Checkpoint(r.Text(1)), Parent: id.Checkpoint(r.Text(2)), Metadata: r.Bytes(3), Versions: versions})
		return err
	}, t); err != nil {
		return nil, err
	}
	var steps []thread.Step
	for i := len(found) - 1; i >= 0; i-- {
		if r := found[i]; r.NS == "" {
			steps = append(steps, thread.Step{ID: r.ID, Parent: r.Parent, Run: runOf(r)})
		}
	}
	if f.at, err = thread.ForkPoint(at.Seq, marks, steps); err != nil || f.at == "" {
		return f, err
	}
	f.choose(found, steps)
	return f, errors.Join(f.chooseNodes(q, t), f.chooseParts(db, q, t))
}

func scanMark(r Row) thread.Mark {
	m := gjson.GetManyBytes(r.Bytes(1), "checkpoint_id", "partial", "rolled_back")
	return thread.Mark{Seq: eventstore.Seq(r.Int(0)), Run: id.Run(r.Text(2)), Checkpoint: id.Checkpoint(m[0].String()), Partial: m[1].Bool(), Undone: m[2].Bool()}
}

func runOf(r rows.PruneRow) id.Run { return id.Run(gjson.GetBytes(r.Metadata, "run_id").String()) }

// choose takes the checkpoint and its ancestors, and of subgraphs what was there then.
func (f *Fork) choose(found []rows.PruneRow, steps []thread.Step) {
	parents := make(map[id.Checkpoint]id.Checkpoint, len(steps))
	var own id.Run
	for _, s := range steps {
		parents[s.ID] = s.Parent
		if s.ID == f.at {
			own = s.Run
		}
	}
	for c, known := f.at, true; known && !f.checkpoints[checkpointName{"", c}]; {
		f.checkpoints[checkpointName{"", c}] = true
		c = parents[c]
		_, known = parents[c]
	}
	// The run ended here when only others continued: then its subgraphs wait where they are. Otherwise they have already done the next step.
	ended := true
	f.leaf = true
	for _, s := range steps {
		if s.Parent == f.at {
			f.leaf = false
			ended = ended && s.Run != own
		}
	}
	for _, r := range found {
		k := checkpointName{r.NS, r.ID}
		if r.NS != "" {
			f.checkpoints[k] = r.ID <= f.at || ended && (f.leaf || runOf(r) == own)
		}
		if !f.checkpoints[k] {
			continue
		}
		for _, v := range r.Versions {
			f.values[valueName{r.NS, v}] = true
		}
	}
}

// chooseNodes takes the nodes up to the last one of the transcripts: others may be based on them.
func (f *Fork) chooseNodes(q Querier, t id.Thread) error {
	return q.Query(nodeNumbers, func(r Row) error {
		if f.checkpoints[checkpointName{"", id.Checkpoint(r.Text(0))}] {
			f.node = max(f.node, r.Int(1))
		}
		return nil
	}, t)
}

// chooseParts takes the parts of the lists that it has.
func (f *Fork) chooseParts(db DB, q Querier, t id.Thread) error {
	lists, err := all(q, ListsOf, scanList, t)
	if err != nil {
		return err
	}
	var values [][]byte
	for _, l := range lists {
		if f.takesValue(l.ns, l.channel, l.version) {
			values = append(values, l.value)
		}
	}
	sets := make([]*compact.Set, len(values))
	for i := range sets {
		sets[i] = &f.parts
	}
	return db.Parts(q, t, values, sets)
}

func (f *Fork) takesValue(ns, channel, version string) bool {
	return f.values[valueName{ns, rows.ChannelVersion{Channel: channel, Version: version}}] && !f.without[channel]
}

// Takes reports whether a fork takes a row of a table. The columns behind the thread, with the key first, begin at first.
func (f *Fork) Takes(table string, r Row, first int) bool {
	if f == nil {
		return true
	}
	switch table {
	case "list_parts":
		n := r.Int(first)
		return n >= 0 && n <= math.MaxUint32 && f.parts.Has(uint32(n))
	case "checkpoint_blobs":
		return f.takesValue(r.Text(first), r.Text(first+1), r.Text(first+2))
	case "checkpoint_writes":
		k := checkpointName{r.Text(first), id.Checkpoint(r.Text(first + 1))}
		// What followed the checkpoint is left out: its tasks run again.
		return f.checkpoints[k] && (f.leaf || k != checkpointName{"", f.at} || r.Text(first+4) == interrupt)
	case "checkpoints", "snapshots":
		return f.checkpoints[checkpointName{r.Text(first), id.Checkpoint(r.Text(first + 1))}]
	case "events":
		return eventstore.Seq(r.Int(first)) <= f.seq
	case "transcript_nodes":
		return r.Int(first) <= f.node
	case "transcripts":
		return f.checkpoints[checkpointName{"", id.Checkpoint(r.Text(first))}]
	}
	panic("relational: unknown table " + table)
}
