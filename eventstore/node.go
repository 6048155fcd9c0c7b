package eventstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"understudy/id"
)

// A node holds three lists of entries: the transcript, the list, and all anonymous messages of its lineage. Its data is a sequence
// of differences, each to the list of the base (an empty one, when the node is whole):
//
//	number of splices, then for each: entries to keep, entries to leave out, number of runs to put in, and the runs:
//	first seq (as the difference to the end of the run before), its length, doubled, plus one if they are summaries
//
// all as varints. The rest of the base after the last splice is kept.

var errNode = errors.New("eventstore: corrupt node")

// lists is the decoded content of a node.
type lists struct{ transcript, list, anonymous []Entry }

func (l *lists) each() [3]*[]Entry { return [...]*[]Entry{&l.transcript, &l.list, &l.anonymous} }

// encodeNode returns the data of a node that turns old into new.
func encodeNode(old, new lists) []byte {
	var dst []byte
	before, after := old.each(), new.each()
	for i := range before {
		dst = appendDiff(dst, *before[i], *after[i])
	}
	return dst
}

// decodeNodes decodes the chain of nodes that Tx.Nodes returns.
func decodeNodes(nodes []Node) (l lists, err error) {
	for i, n := range nodes {
		if (n.Base == 0) != (i == 0) {
			return lists{}, errNode
		}
		data := n.Data
		for _, entries := range l.each() {
			if *entries, data, err = applyDiff(*entries, data); err != nil {
				return lists{}, err
			}
		}
		if len(data) > 0 {
			return lists{}, errNode
		}
	}
	if len(nodes) == 0 {
		return lists{}, errNode
	}
	return l, nil
}

type splice struct {
	keep, leave int
	put         []Entry
}

// diff returns the splices that turn old into new. Entries rarely change their order; a reordered stretch is written in full.
func diff(old, new []Entry) []splice {
	head := 0
	for head < len(old) && head < len(new) && old[head] == new[head] {
		head++
	}
	if head == len(old) {
		if head == len(new) {
			return nil
		}
		return []splice{{keep: head, put: new[head:]}}
	}
	tail := 0
	for tail < len(old)-head && tail < len(new)-head && old[len(old)-1-tail] == new[len(new)-1-tail] {
		tail++
	}
	a, b := old[head:len(old)-tail], new[head:len(new)-tail]
	rewrite := []splice{{keep: head, leave: len(a), put: b}}
	in := make(map[Entry]bool, len(a)) // entries of a; true when b has them too
	for _, e := range a {
		in[e] = false
	}
	for _, e := range b {
		if _, ok := in[e]; ok {
			in[e] = true
		}
	}
	var out []splice
	cur := splice{keep: head}
	i := 0
	for _, e := range b {
		if !in[e] {
			cur.put = append(cur.put, e)
			continue
		}
		for i < len(a) && !in[a[i]] {
			cur.leave++
			i++
		}
		if i == len(a) || a[i] != e {
			return rewrite
		}
		if cur.leave > 0 || len(cur.put) > 0 {
			out, cur = append(out, cur), splice{}
		}
		cur.keep++
		i++
	}
	if rest := len(a) - i; rest > 0 {
		for _, e := range a[i:] {
			if in[e] {
				return rewrite
			}
		}
		cur.leave += rest
	}
	if cur.leave > 0 || len(cur.put) > 0 {
		out = append(out, cur)
	}
	return out
}

func appendDiff(dst []byte, old, new []Entry) []byte {
	splices := diff(old, new)
	dst = binary.AppendUvarint(dst, uint64(len(splices)))
	for _, s := range splices {
		dst = binary.AppendUvarint(dst, uint64(s.keep))
		dst = binary.AppendUvarint(dst, uint64(s.leave))
		dst = appendRuns(dst, s.put)
	}
	return dst
}

func appendRuns(dst []byte, entries []Entry) []byte {
	type run struct {
		first Seq
		n     int
		kind  bool
	}
	var runs []run
	for _, e := range entries {
		if k := len(runs) - 1; k >= 0 && runs[k].kind == e.Summary && runs[k].first+Seq(runs[k].n) == e.Seq {
			runs[k].n++
		} else {
			runs = append(runs, run{e.Seq, 1, e.Summary})
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(runs)))
	end := Seq(0)
	for _, r := range runs {
		dst = binary.AppendVarint(dst, int64(r.first-end))
		n := uint64(r.n) << 1
		if r.kind {
			n |= 1
		}
		dst = binary.AppendUvarint(dst, n)
		end = r.first + Seq(r.n)
	}
	return dst
}

// maxEntries limits the allocation for a corrupt node.
const maxEntries = 1 << 24

// applyDiff returns the entries after a diff. It may modify old: most diffs only append.
func applyDiff(old []Entry, data []byte) (entries []Entry, rest []byte, err error) {
	r := reader{data: data}
	splices := r.count(1 << 20)
	if splices == 0 {
		return old, r.data, r.err
	}
	for i := range splices {
		keep, leave := r.count(len(old)), r.count(len(old))
		if keep+leave > len(old) {
			return nil, nil, errNode
		}
		switch {
		case i == 0 && keep == len(old):
			entries = old
		case i == 0:
			entries = append(make([]Entry, 0, len(old)+8), old[:keep]...)
		default:
			entries = append(entries, old[:keep]...)
		}
		old = old[keep+leave:]
		end := Seq(0)
		for range r.count(maxEntries) {
			end += Seq(r.varint())
			n := r.count(maxEntries << 1)
			if r.err != nil || end < 1 || len(entries)+n>>1 > maxEntries {
				return nil, nil, errNode
			}
			entries = slices.Grow(entries, n>>1)
			for range n >> 1 {
				entries = append(entries, Entry{Seq: end, Summary: n&1 == 1})
				end++
			}
		}
		if r.err != nil {
			return nil, nil, r.err
		}
	}
	return append(entries, old...), r.data, r.err
}

// reader reads varints; after an error everything is zero.
type reader struct {
	data []byte
	err  error
}

func (r *reader) count(limit int) int {
	v, n := binary.Uvarint(r.data)
	if r.err != nil || n <= 0 || v > uint64(limit) {
		r.err = errNode
		return 0
	}
	r.data = r.data[n:]
	return int(v)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.data)
	if r.err != nil || n <= 0 {
		r.err = errNode
		return 0
	}
	r.data = r.data[n:]
	return v
}

// Fold builds the transcript of a checkpoint from its row and the result of Tx.Nodes, which is empty when its Node is 0.
func Fold(row *Row, nodes []Node) (*Transcript, error) {
	tr := &Transcript{Run: row.Run, Source: row.Source, Texts: row.Summary}
	if row.Node == 0 {
		return tr, nil
	}
	l, err := decodeNodes(nodes)
	if err != nil {
		return nil, err
	}
	tr.Entries, tr.List, tr.Anonymous = l.transcript, l.list, l.anonymous
	return tr, nil
}

// Transcripts are the stored transcripts of some checkpoints of a thread. Shared parts are in memory
// once; each transcript is assembled when it is requested.
type Transcripts struct {
	rows  map[id.Checkpoint]*Row
	nodes map[int64]Node
	Log   int64 // Transcript.Log of all
}

// NewTranscripts makes Transcripts of rows and of the nodes that they consist of. See Transcript.Log.
func NewTranscripts(rows []*Row, nodes []Node, log int64) *Transcripts {
	t := &Transcripts{rows: make(map[id.Checkpoint]*Row, len(rows)), nodes: make(map[int64]Node, len(nodes)), Log: log}
	for _, r := range rows {
		t.rows[r.Checkpoint] = r
	}
	for _, n := range nodes {
		t.nodes[n.ID] = n
	}
	return t
}

// Has reports whether a checkpoint was among those that were read and something was recorded for it.
func (t *Transcripts) Has(c id.Checkpoint) bool { return t != nil && t.rows[c] != nil }

// At returns the transcript of a checkpoint; nil when nothing was recorded for it, or what its channel holds are no messages: then the checkpoint itself is all
// there is to show.
func (t *Transcripts) At(c id.Checkpoint) (*Transcript, error) {
	row := t.rows[c]
	if row == nil || row.Opaque {
		return nil, nil
	}
	var chain []Node
	for at := row.Node; at != 0; {
		n, ok := t.nodes[at]
		if !ok {
			return nil, fmt.Errorf("transcript of checkpoint %s of thread %s: node %d is missing", c, row.Thread, at)
		}
		chain = append(chain, n)
		at = n.Base
	}
	slices.Reverse(chain)
	tr, err := Fold(row, chain)
	if err == nil && len(chain) > 0 {
		tr.Log = t.Log
	}
	return tr, err
}
