package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/names"
	"understudy/internal/shell"
	"understudy/store"
	"understudy/thread"
)

// Importer imports conversations.
type Importer struct {
	Target     Target
	Assistants assistant.Store
	Items      store.Backend
	Backfill   *eventstore.Backfiller
	// Graph is the graph of threads whose checkpoints do not name it; "": none.
	Graph string
	// Rename gives graphs of the source other names here, also in what was moved earlier.
	Rename GraphNames
	// Graphs are those that the target serves, to report threads of others. nil: not known.
	Graphs []string
	// Progress receives the progress. nil: none.
	Progress Progress
	Now      func() time.Time // nil: the machine's

	graphless int             // threads that got Graph
	renamed   int             // threads that were here and got a name of Rename
	graphs    map[string]bool // that threads and assistants of the source name
}

const (
	// batchSteps and batchBytes limit a transaction, and so the memory.
	batchSteps = 32
	batchBytes = 4 << 20
)

// job is one import or export.
type job struct {
	result *Result
	hash   hash.Hash // nil: nothing was compared
	notes  []string
	unled  unled
}

func newJob() *job { return &job{result: &Result{}} }

// compared adds the digest of what was read, and is compared, to that of the job.
func (j *job) compared(d sum) {
	if j.hash == nil {
		j.hash = sha256.New()
	}
	j.hash.Write(d[:])
}

func (j *job) problem(what string, err error) {
	j.result.Problems = append(j.result.Problems, Problem{what, err})
}

func (j *job) finish(notes []string) *Result {
	if j.hash != nil {
		j.result.Digest = hex.EncodeToString(j.hash.Sum(nil)[:8])
	}
	j.result.Notes = slices.Concat(j.notes, j.unled.notes(), notes)
	return j.result
}

// Run moves everything in the source. After an error, moved data stays, and the next call of Run
// continues from there. Moved data that differs from the source is listed in the result.
func (m *Importer) Run(ctx context.Context, src Source) (*Result, error) {
	if m.Progress == nil {
		m.Progress = silent{}
	}
	if m.Now == nil {
		m.Now = time.Now
	}
	j := newJob()
	if err := m.Rename.Check(); err != nil {
		return nil, err
	}
	m.graphs = map[string]bool{}
	if s, ok := src.(AssistantSource); ok {
		if err := m.assistants(ctx, j, s); err != nil {
			return nil, err
		}
	}
	if err := m.threads(ctx, j, src); err != nil {
		return nil, err
	}
	j.notes = append(j.notes, m.unusedNames()...)
	if err := m.items(ctx, j, src); err != nil {
		return nil, err
	}
	return j.finish(src.Notes()), nil
}

func (m *Importer) threads(ctx context.Context, j *job, src Source) error {
	total, err := src.CountThreads(ctx)
	if err != nil {
		return fmt.Errorf("count threads of %s: %w", src.Name(), err)
	}
	m.Progress.Begin("threads", total)
	defer m.Progress.End()
	others, unknown, missing := 0, []string{}, map[string]int{}
	m.graphless, m.renamed = 0, 0
	for t, err := range src.Threads(ctx) {
		if err != nil {
			return fmt.Errorf("threads of %s: %w", src.Name(), err)
		}
		to, same := t.ID()
		if !same {
			others++
		}
		row, err := m.thread(ctx, j, src, t, to)
		graph := ""
		if row != nil {
			graph = graphOf(row.Metadata)
			m.graphs[sourceGraph(t, graph)] = true
		}
		switch {
		case err != nil && (ctx.Err() != nil || fatal(err)):
			return fmt.Errorf("thread %s: %w", t.Key, err)
		case err != nil:
			j.problem("thread "+t.Key, err)
		case graph == "" && row.Head == "": // it never ran: its first run names the graph
		case graph == "":
			unknown = append(unknown, t.Key)
		case m.Graphs != nil && !slices.Contains(m.Graphs, graph):
			missing[graph]++
		}
		m.Progress.Step(t.Key)
	}
	if others > 0 {
		j.notes = append(j.notes, fmt.Sprintf("%d threads had names that are no UUIDs, which the API demands: their ids are made of the names (UUID version 5, "+
			"always the same), and the names are in metadata.%s", others, original))
	}
	if m.graphless > 0 {
		j.notes = append(j.notes, fmt.Sprintf("%d threads do not name their graph and belong to %q now (--graph NAME chooses)", m.graphless, m.Graph))
	}
	for _, graph := range slices.Sorted(maps.Keys(missing)) {
		j.notes = append(j.notes, fmt.Sprintf("graph %q of %d threads is not in langgraph.json: they can be read, with their questions, and continue when it is there. "+
			"If it has another name here, import again with --rename %s", graph, missing[graph], shell.Quote(graph+"=NAME")))
	}
	if m.renamed > 0 {
		j.notes = append(j.notes, fmt.Sprintf("%d threads that were there have the graph that --rename names now", m.renamed))
	}
	if n := len(unknown); n > 0 {
		const shown = 20
		j.notes = append(j.notes, fmt.Sprintf("the graph of %d threads is not known; their state shows what rows say until a run names an assistant. "+
			"Import again with --graph NAME to set it: %s", n, names.Some(unknown, shown)))
	}
	return nil
}

// fatal reports errors that would affect the next thread too.
func fatal(err error) bool { return fault.Is(err, fault.Unavailable) || errors.Is(err, errGone) }

// errGone: the source no longer answers.
var errGone = errors.New("the source stopped responding")

// ID returns the id of a thread here, and whether it equals its key in the source.
func (t *Thread) ID() (to id.Thread, same bool) {
	if t.SameID {
		return id.Thread(t.Key), true
	}
	if c := id.Canonical(t.Key); c != "" {
		return id.Thread(c), c == t.Key
	}
	return id.Thread(uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.Key)).String()), false
}

// thread moves one thread and returns its row.
func (m *Importer) thread(ctx context.Context, j *job, src Source, t *Thread, to id.Thread) (_ *thread.Thread, err error) {
	row, err := m.Target.Thread(ctx, to)
	if fault.Is(err, fault.NotFound) {
		row = nil
	} else if err != nil {
		return nil, err
	}
	renamed := false
	if row != nil && len(m.Rename) > 0 {
		if row, renamed, err = m.renameHere(ctx, row); err != nil {
			return nil, err
		}
		if renamed {
			m.renamed++
		}
	}
	have, err := m.Target.Links(ctx, to)
	if err != nil {
		return nil, err
	}
	if c, ok := src.(CountedSource); ok && row != nil {
		head, err := c.Newest(ctx, t)
		if err != nil {
			return nil, err
		}
		if isHere(head, row, have) && !asked(t.Row, row, head) {
			j.result.Unread++
			j.result.Checkpoints.Known += len(have)
			return m.named(ctx, j, t, row, to, false, renamed) // it may have no graph yet
		}
	}
	h, err := src.History(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	links := parentsFirst(h.Links())
	if err := diverged(row, links, have); err != nil {
		return nil, err
	}
	if l, ok := src.(LogSource); ok {
		log, err := l.Log(ctx, t)
		if err == nil && log != nil {
			err = m.Target.PutLog(ctx, to, log)
		}
		if err != nil {
			return nil, fmt.Errorf("log: %w", err)
		}
	}
	wanted := newSums()
	_, wanted.withoutRun = src.(RunDeriver)
	if err := m.steps(ctx, j, h, links, have, to, wanted); err != nil {
		return nil, err
	}
	if s, ok := src.(TranscriptSource); ok && len(have) == 0 {
		if err := m.earlier(ctx, s, t, links, to); err != nil {
			return nil, fmt.Errorf("transcript: %w", err)
		}
	}
	if err := m.Backfill.Ensure(ctx, to, ""); err != nil {
		return nil, err
	}
	if s, ok := src.(RowSource); ok && len(have) == 0 {
		if err := m.countUnled(ctx, j, s, t, to); err != nil {
			return nil, fmt.Errorf("transcript: %w", err)
		}
	}
	more := len(links) > countShared(links, have) || row != nil && newest(links) > row.Head || asked(t.Row, row, newest(links))
	if row, err = m.named(ctx, j, t, row, to, more, renamed); err != nil {
		return nil, err
	}
	return row, m.verify(ctx, j, to, wanted)
}

// named writes the row of a thread as row does, and counts the thread. renamed: its graph got another name.
func (m *Importer) named(ctx context.Context, j *job, t *Thread, was *thread.Thread, to id.Thread, more, renamed bool) (*thread.Thread, error) {
	row, changed, err := m.row(ctx, t, was, to, more)
	switch {
	case err != nil:
		return nil, err
	case changed || renamed:
		j.result.Threads.New++
	default:
		j.result.Threads.Known++
	}
	return row, nil
}

// steps moves the missing checkpoints, and computes the digests of all.
func (m *Importer) steps(ctx context.Context, j *job, h History, links, have []Link, to id.Thread, wanted *sums) error {
	here := places(have)
	moved := newSums()
	b := batch{write: func(steps []*Step) error {
		return m.Target.Write(ctx, func(tx thread.Tx) error {
			for _, p := range steps {
				if _, ok := here[place{p.NS, p.ID}]; !ok {
					if err := tx.PutCheckpoint(&p.Put); err != nil {
						return err
					}
				}
				if err := tx.PutWrites(p.Key, p.Writes); err != nil {
					return err
				}
			}
			return nil
		})
	}}
	ahead := len(have) > countShared(links, have) // it has continued here, with its own writes
	err := h.Read(ctx, links, func(p *Step) error {
		p.Thread = to
		p.Metadata = m.Rename.metadata(rename(p.Metadata, string(to)))
		if p.Run == "" {
			p.Run = runOf(p.Metadata)
		}
		if err := wanted.add(p); err != nil {
			return err
		}
		_, known := here[place{p.NS, p.ID}]
		if known {
			j.result.Checkpoints.Known++
			j.result.Writes.Known += len(p.Writes)
			if ahead || len(p.Writes) == 0 {
				return nil
			}
		} else {
			j.result.Checkpoints.New++
			j.result.Writes.New += len(p.Writes)
		}
		// A database that shares values between checkpoints returns each once; others return them
		// with each checkpoint.
		p.Blobs = slices.DeleteFunc(slices.Clone(p.Blobs), func(b checkpointer.Blob) bool {
			k := valueKey{p.NS, b.Channel, b.Version}
			_, done := moved.values[k]
			moved.values[k] = sum{}
			return done && !known
		})
		own := *p
		return b.add(&own)
	})
	if err != nil {
		return err
	}
	return b.flush()
}

// batch collects steps for one transaction.
type batch struct {
	write func([]*Step) error
	steps []*Step
	size  int
}

func (b *batch) add(p *Step) error {
	b.steps = append(b.steps, p)
	if b.size += p.Size(); len(b.steps) >= batchSteps || b.size >= batchBytes {
		return b.flush()
	}
	return nil
}

func (b *batch) flush() error {
	if len(b.steps) == 0 {
		return nil
	}
	steps := b.steps
	b.steps, b.size = nil, 0
	return b.write(steps)
}

// diverged returns an error when a thread has continued both here and in the source.
func diverged(row *thread.Thread, links, have []Link) error {
	if row == nil || len(links) == 0 {
		return nil
	}
	shared := countShared(links, have)
	if shared == len(links) || shared == len(have) {
		return nil
	}
	return fmt.Errorf("it continued in both places since the import (%d checkpoints only there, %d only here): delete it here to import it again",
		len(links)-shared, len(have)-shared)
}

func places(links []Link) map[place]struct{} {
	out := make(map[place]struct{}, len(links))
	for _, l := range links {
		out[place{l.NS, l.ID}] = struct{}{}
	}
	return out
}

func countShared(a, b []Link) (n int) {
	in := places(b)
	for _, l := range a {
		if _, ok := in[place{l.NS, l.ID}]; ok {
			n++
		}
	}
	return n
}

// isHere reports whether a thread was moved up to this newest root checkpoint of the source. Times
// do not show that: the thread may have continued here as well. Nor does the checkpoint alone: an
// import that was interrupted wrote it before those of subgraphs and before the row.
func isHere(head id.Checkpoint, row *thread.Thread, have []Link) bool {
	if head == "" {
		return true
	}
	_, ok := places(have)[place{"", head}]
	return ok && head <= row.Head
}

// asked reports whether a thread that did not continue here stopped in the source since it was moved, at the same checkpoint: a question or an error adds
// none.
func asked(there, here *thread.Thread, head id.Checkpoint) bool {
	return there != nil && here != nil && head == here.Head && there.Status != thread.Busy && there.UpdatedAt.After(here.UpdatedAt) &&
		(there.Status != here.Status || there.Interrupts != nil && !sameJSON(there.Interrupts, here.Interrupts))
}

func sameJSON(a, b []byte) bool { return string(canonical(a)) == string(canonical(b)) }

// newest returns the newest root checkpoint.
func newest(links []Link) (head id.Checkpoint) {
	for _, l := range links {
		if l.NS == "" && l.ID > head {
			head = l.ID
		}
	}
	return head
}

// verify reads a thread back and compares it with the source.
func (m *Importer) verify(ctx context.Context, j *job, to id.Thread, wanted *sums) error {
	h, err := openOwn(ctx, m.Target, to)
	if err != nil {
		return err
	}
	if err := wanted.readBack(ctx, h, h.links); err != nil {
		return err
	}
	lacks, err := m.Target.Unrecorded(ctx, to)
	if err != nil {
		return err
	}
	if lacks {
		return errors.New("the transcript is not complete")
	}
	j.compared(wanted.total())
	return nil
}

func (m *Importer) items(ctx context.Context, j *job, src Source) error {
	m.Progress.Begin("store items", -1)
	defer m.Progress.End()
	var batch []*store.Item
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := m.Items.Apply(ctx, batch); err != nil {
			return err
		}
		for _, i := range batch {
			back, err := m.Items.Item(ctx, i.Namespace, i.Key)
			if err != nil {
				return err
			}
			if back == nil || digestItem(back) != digestItem(i) {
				j.problem(itemName(i), errors.New("what was read back differs"))
			}
		}
		batch, size = nil, 0
		return nil
	}
	for i, err := range src.Items(ctx) {
		if err != nil {
			return fmt.Errorf("store items of %s: %w", src.Name(), err)
		}
		d := digestItem(i)
		j.compared(d)
		m.Progress.Step(i.Key)
		was, err := m.Items.Item(ctx, i.Namespace, i.Key)
		if err != nil {
			return err
		}
		if was != nil && (digestItem(was) == d || was.UpdatedAt.After(i.UpdatedAt)) {
			j.result.Items.Known++
			continue
		}
		j.result.Items.New++
		batch = append(batch, i)
		if size += len(i.Value); len(batch) >= pageSize || size >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func itemName(i *store.Item) string {
	return fmt.Sprintf("store item %q of %s", i.Key, strings.Join(i.Namespace, "."))
}
