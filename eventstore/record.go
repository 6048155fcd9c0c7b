package eventstore

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/eventstore/judge"
	"understudy/id"
	"understudy/internal/jsonplus"
)

// messagesChannel is the channel that holds the conversation unless Keys returns another.
const messagesChannel = "messages"

// Keys returns the channel that holds the messages of a graph. nil: `messages` for all graphs.
type Keys func(graph string) string

// of returns the messages channel for a checkpoint with this metadata.
func (k Keys) of(metadata json.RawMessage) string {
	if k != nil {
		if key := k(gjson.GetBytes(metadata, "graph_id").String()); key != "" {
			return key
		}
	}
	return messagesChannel
}

// Facts describes a new root checkpoint.
type Facts struct {
	Thread     id.Thread
	Checkpoint id.Checkpoint
	Parent     id.Checkpoint // "" for the first
	Run        id.Run        // "" for state updates
	Source     string        // metadata.source: input, loop, update, fork
	Step       int           // metadata.step
	Channel    string        // of the messages; "": `messages`
	At         time.Time     // when the checkpoint was made
	Version    string        // of the channel of the messages; "" when the checkpoint has none
	Messages   *Value        // the channel's value; nil: loaded when needed
	Channels   []TextChannel // the checkpoint's SummaryChannels
	// Words is the text of a `summarization` custom event of this step. It takes precedence over the checkpoint's text.
	Words string
	// Deleted names condensed messages that a client deleted with this checkpoint. The graph no longer has them.
	Deleted []string
	// Calls returns the model call that made a message; the zero value when none is known. nil: none is.
	Calls func(message string) Call
}

// Call is a model call that made a message.
type Call struct {
	Took   time.Duration // 0: unknown
	Number int           // among the calls of its run, from 1; 0: there is no call
}

// FactsOf returns the facts of a checkpoint as it is saved, with its messages in `messages`.
func FactsOf(p *checkpointer.Put) Facts { return Keys(nil).FactsOf(p) }

// FactsOf returns the facts of a checkpoint as it is saved.
func (k Keys) FactsOf(p *checkpointer.Put) Facts {
	f := Facts{
		Channel: k.of(p.Metadata),
		Thread:  p.Thread, Checkpoint: p.ID, Parent: p.Parent, Run: p.Run,
		Source: gjson.GetBytes(p.Metadata, "source").String(),
		Step:   int(gjson.GetBytes(p.Metadata, "step").Int()),
	}
	// Invalid times become the zero time, which means now.
	f.At, _ = time.Parse(time.RFC3339Nano, gjson.GetBytes(p.Data, "ts").String())
	versions := gjson.GetBytes(p.Data, "channel_versions")
	f.Version = versions.Get(gjson.Escape(f.Channel)).String()
	blob := func(channel string) *Value {
		for _, blobs := range [][]checkpointer.Blob{p.Folded, p.Blobs} {
			for _, b := range blobs {
				if b.Channel == channel {
					return &Value{Type: b.Type, Data: b.Data, Packed: b.Items}
				}
			}
		}
		return nil
	}
	if f.Version != "" {
		f.Messages = blob(f.Channel)
	}
	for _, name := range SummaryChannels {
		version := versions.Get(name).String()
		if version == "" {
			continue
		}
		c := TextChannel{Name: name, Version: version}
		// Not all values at once: gjson.GetBytes copies what it returns, and they may be most of the state.
		if v := gjson.GetBytes(p.Data, "channel_values."+name); v.Type == gjson.String {
			c.Text = v.String()
		} else if b := blob(name); b != nil {
			if text, err := jsonplus.AppendJSON(nil, b.Type, b.Data); err == nil {
				if v := gjson.ParseBytes(text); v.Type == gjson.String {
					c.Text = v.String()
				}
			}
		}
		f.Channels = append(f.Channels, c)
	}
	return f
}

// channel returns the channel of the messages.
func (f *Facts) channel() string {
	if f.Channel == "" {
		return messagesChannel
	}
	return f.Channel
}

// Record compares the messages of a new root checkpoint with those of its parent, appends the changes to the log, and stores the
// checkpoint's transcript. Call it in the transaction that saves the checkpoint. If the parent was never recorded, all messages are
// new.
func Record(tx Tx, f Facts) error {
	row, err := tx.TranscriptRow(f.Thread, f.Checkpoint)
	if err != nil {
		return err
	}
	if row != nil && row.Version == f.Version {
		return nil // saved again
	}
	var parent *Row
	if f.Parent != "" {
		if parent, err = tx.TranscriptRow(f.Thread, f.Parent); err != nil {
			return err
		}
	}
	row = &Row{
		Thread: f.Thread, Checkpoint: f.Checkpoint, Version: f.Version, Source: f.Source, Run: f.Run, Summary: TextsOf(f.Channels),
	}
	same := parent
	if f.Version != "" && (parent == nil || parent.Version != f.Version) {
		// A fork that copies a checkpoint has the parent of the original: the step between them was judged for the
		// original.
		if same, err = tx.TranscriptOfVersion(f.Thread, f.Version); err != nil {
			return err
		}
		if same == nil || len(f.Deleted) > 0 {
			return recordStep(tx, &f, parent, row)
		}
	}
	if len(f.Deleted) > 0 && parent != nil {
		return recordStep(tx, &f, parent, row)
	}
	if same != nil {
		row.Node, row.Stamp, row.Opaque = same.Node, same.Stamp, same.Opaque
	}
	return tx.PutTranscriptRow(row)
}

// recordStep records a checkpoint whose messages differ from those of its parent.
func recordStep(tx Tx, f *Facts, parent, row *Row) error {
	old := &state{}
	if parent != nil {
		row.Node, row.Stamp = parent.Node, parent.Stamp
		if parent.Node != 0 {
			if old = tx.Cache().take(f.Thread, parent); old == nil {
				var err error
				if old, err = loadState(tx, f.Thread, parent); err != nil {
					return fmt.Errorf("transcript of checkpoint %s: %w", f.Parent, err)
				}
			}
		}
	}
	if old.index == nil {
		old.buildIndex()
	}
	s := &step{tx: tx, f: f, parent: parent, old: old}
	ok, err := s.read()
	if err != nil {
		return err
	}
	if !ok {
		row.Opaque = true
		if old.node.ID != 0 {
			tx.Cache().put(f.Thread, old)
		}
		return tx.PutTranscriptRow(row)
	}
	if s.Client, err = s.byClient(); err != nil {
		return err
	}
	s.Deleted = f.Deleted
	s.Verdict = s.Judge()
	for i, sl := range s.slots {
		if s.Next[i].Was == nil {
			sl.was = nil // its id now belongs to a summary
		}
	}
	if err := s.append(); err != nil {
		return err
	}
	next := s.place()
	if !s.changed(next) {
		next.node = old.node
	} else if err := putNode(tx, f.Thread, old, next); err != nil {
		return err
	}
	row.Node, row.Stamp = next.node.ID, next.node.Stamp
	if next.node.ID != 0 {
		tx.Cache().put(f.Thread, next)
	}
	return tx.PutTranscriptRow(row)
}

// minWhole is the size in bytes above which a difference saves enough to be worth the extra reads.
const minWhole = 128

// putNode stores next as the difference to old, or whole once the differences since the last whole node outweigh it. So the
// storage of a step and the reads for a checkpoint stay proportional to its content.
func putNode(tx Tx, t id.Thread, old, next *state) error {
	after := next.lists()
	n := Node{Stamp: rand.Int64()}
	if old.node.ID != 0 {
		n.Data = encodeNode(old.lists(), after)
		n.Base, n.Whole, n.Since = old.node.ID, old.node.Whole, old.node.Since+len(n.Data)
	}
	if n.Base == 0 || n.Since > max(n.Whole, minWhole) {
		n.Data = encodeNode(lists{}, after)
		n.Base, n.Whole, n.Since = 0, len(n.Data), 0
	}
	if err := tx.PutNode(t, &n); err != nil {
		return err
	}
	next.node = n
	next.node.Data = nil
	return nil
}

// step is the recording of one checkpoint.
type step struct {
	judge.Step[*item]
	*judge.Verdict[*item]

	tx     Tx
	f      *Facts
	parent *Row
	old    *state
	slots  []*slot // the messages after the unchanged beginning, one for each of Next

	unreadable string // type of a value that cannot be read; else ""
	shown      bool   // the value is JSON, as clients see it

	marker   *item     // added to the transcript
	lost     *item     // added to the end of the transcript for an unreadable value
	nameless []*item   // new messages without id
	at       time.Time // of events
	events   []*Event
	made     []*item // by each of events; nil: it makes no entry
}

// slot is a message of the new list, with the result of matching it.
type slot struct {
	raw     []byte
	hash    uint64
	digest  [16]byte
	message jsonplus.Message
	text    []byte // the message as JSON, if it gets an event
	was     *item  // the same message in the parent's transcript or list; nil: it is new
	revised bool   // other content than was
	// type of an unreadable item; "" for messages
	unreadable string
	it         *item // its item in the new list
}

// read compares the new list with the old one; ok is false when the checkpoint does not hold messages.
func (s *step) read() (ok bool, err error) {
	s.Shown, s.List = s.old.shown, s.old.list
	if s.parent != nil && s.parent.Version == s.f.Version {
		s.Prefix, s.Unread = len(s.List), true
		return !s.parent.Opaque, nil
	}
	items, unreadable, ok, err := s.messages()
	if err != nil {
		return false, err
	}
	if unreadable != "" {
		s.loses(unreadable)
		return true, nil
	}
	if !ok {
		return false, nil
	}
	return s.resolve(items)
}

// resolve matches the messages of the new list with known ones. ok is false when an item of the list is not a message.
func (s *step) resolve(items [][]byte) (ok bool, err error) {
	old := s.List
	for s.Prefix < len(old) && s.Prefix < len(items) {
		it := s.same(old[s.Prefix], items[s.Prefix])
		if it == nil {
			break
		}
		old[s.Prefix] = it
		s.Prefix++
	}
	s.Prefix = judge.Beginning(old, s.Prefix)
	slots := make([]*slot, len(items)-s.Prefix)
	keys := make([]judge.Item, len(slots))
	for i, raw := range items[s.Prefix:] {
		slots[i] = &slot{raw: raw, hash: quickHash(raw), digest: digestOf(raw)}
		if ok = s.parse(slots[i]); !ok {
			return false, nil
		}
		keys[i] = judge.Item{ID: slots[i].message.ID, Digest: slots[i].digest}
	}
	var found []judge.Match[*item]
	found, s.Gone = judge.Find(old, s.Prefix, keys, func(mid string) *item { return s.old.index[mid] })
	for i, sl := range slots {
		if found[i].Again {
			continue
		}
		if err := s.compare(sl, found[i].Was); err != nil {
			return false, err
		}
		s.slots = append(s.slots, sl)
		s.Next = append(s.Next, judge.Next[*item]{
			Was: sl.was, Revised: sl.revised, Declared: sl.message.LCSource == lcSummarization, Speech: CanSummarize(sl.message.Type),
		})
	}
	return true, nil
}

// same returns the item, or a copy that has its hash, if raw is the same message unchanged; else nil.
func (s *step) same(it *item, raw []byte) *item {
	hash := quickHash(raw)
	switch {
	case it.hash == hash:
		return it
	case it.hash == 0 && digestOf(raw) == it.digest:
		return withHash(it, hash)
	default:
		return nil
	}
}

func withHash(it *item, hash uint64) *item {
	if it.hash == hash {
		return it
	}
	c := *it
	c.hash = hash
	return &c
}

// compare notes the known message of a slot, nil for a new one, and whether its content changed.
func (s *step) compare(sl *slot, was *item) error {
	sl.was = was
	switch {
	case was == nil:
		s.show(sl)
		return nil
	case was.digest == sl.digest || sl.message.ID == "":
		sl.it = withHash(was, sl.hash)
		return nil
	}
	s.show(sl)
	if was.unsaved() { // saved by now, no longer partial
		sl.revised = true
		return nil
	}
	// Different bytes may still be the same message: a new version of a library may write fields in another order. Of a summary only
	// the text is shown.
	before, err := s.tx.Content(s.f.Thread, was.Seq)
	if err != nil {
		return err
	}
	if was.Summary {
		c, err := ParseSummary(before)
		if err != nil {
			return err
		}
		sl.revised = textOf(sl.text) != c.Words()
	} else {
		sl.revised = string(sl.text) != string(before)
	}
	if !sl.revised {
		sl.it = withHash(was, sl.hash)
	}
	return nil
}

// metadataOf returns the metadata of an event.
func (s *step) metadataOf(revises *item) json.RawMessage {
	var b strings.Builder
	fmt.Fprintf(&b, `{"checkpoint_id":%q,"step":%d`, string(s.f.Checkpoint), s.f.Step)
	if revises != nil {
		fmt.Fprintf(&b, `,"revises":%d`, revises.Seq)
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}
