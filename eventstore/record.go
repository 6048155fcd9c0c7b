package eventstore

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/jsonplus"
)

// messagesChannel is the channel whose value is the conversation, unless Keys say otherwise.
const messagesChannel = "messages"

// Keys tell which channel holds the messages of a graph. nil: `messages`, for all.
type Keys func(graph string) string

// of gives the channel for a checkpoint with this metadata.
func (k Keys) of(metadata json.RawMessage) string {
	if k != nil {
		if key := k(gjson.GetBytes(metadata, "graph_id").String()); key != "" {
			return key
		}
	}
	return messagesChannel
}

// summaryChannels may hold the text of a summary, for graphs that keep it apart from the messages. The first that changed counts.
var summaryChannels = [...]string{"summary_text", "summary"}

// Facts is what is known of a new root checkpoint.
type Facts struct {
	Thread     id.Thread
	Checkpoint id.Checkpoint
	Parent     id.Checkpoint // "" for the first
	Run        id.Run        // "" for state updates
	Source     string        // metadata.source: input, loop, update, fork
	Step       int           // metadata.step
	Channel    string        // that holds the messages; "" is `messages`
	At         time.Time     // when the checkpoint was made
	Version    string        // of the channel of the messages; "" when the checkpoint has none
	Messages   *Value        // the channel's value; nil: it is looked up when it is needed
	Channels   []TextChannel // those of summaryChannels that the checkpoint has
	// Words is the text of a `summarization` custom event of this step. It goes before what the checkpoint holds.
	Words string
	// Deleted names condensed messages that a client deleted with this checkpoint. The graph does not know them any more.
	Deleted []string
}

// TextChannel is a channel that may hold the text of a summary.
type TextChannel struct {
	Name    string
	Version string
	Text    string // "" when it holds something else
}

// RecordPut records the messages of a root checkpoint that was just put, in the same transaction. Once is enough; again does no harm.
func RecordPut(tx Tx, p *checkpointer.Put) error { return Record(tx, FactsOf(p)) }

// FactsOf reads the facts of a checkpoint as it is saved, with its messages in `messages`.
func FactsOf(p *checkpointer.Put) Facts { return Keys(nil).FactsOf(p) }

// FactsOf reads the facts of a checkpoint as it is saved.
func (k Keys) FactsOf(p *checkpointer.Put) Facts {
	f := Facts{
		Channel: k.of(p.Metadata),
		Thread:  p.Thread, Checkpoint: p.ID, Parent: p.Parent, Run: p.Run,
		Source: gjson.GetBytes(p.Metadata, "source").String(),
		Step:   int(gjson.GetBytes(p.Metadata, "step").Int()),
	}
	// Times that cannot be read give the zero time, which stands for now.
	f.At, _ = time.Parse(time.RFC3339Nano, gjson.GetBytes(p.Data, "ts").String())
	versions, values := gjson.GetBytes(p.Data, "channel_versions"), gjson.GetBytes(p.Data, "channel_values")
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
	for _, name := range summaryChannels {
		version := versions.Get(name).String()
		if version == "" {
			continue
		}
		c := TextChannel{Name: name, Version: version}
		if v := values.Get(name); v.Type == gjson.String {
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

// channel is that of the messages.
func (f *Facts) channel() string {
	if f.Channel == "" {
		return messagesChannel
	}
	return f.Channel
}

// Record compares the messages of a new root checkpoint with those of its parent, appends to the log what happened to them, and notes
// the checkpoint's transcript. It belongs in the transaction that saves the checkpoint. A checkpoint whose parent was never recorded
// starts anew: all its messages are new.
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
		Thread: f.Thread, Checkpoint: f.Checkpoint, Version: f.Version, Source: f.Source, Run: f.Run, Summary: versionsOf(f.Channels),
	}
	same := parent
	if f.Version != "" && (parent == nil || parent.Version != f.Version) {
		// A fork that copies a checkpoint has the parent of the original: what happened in between was judged there.
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

// recordStep records a checkpoint whose messages are not those of another one.
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
	if err := s.judge(); err != nil {
		return err
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

// minWhole is from how many bytes on a difference is worth the reading.
const minWhole = 128

// putNode keeps next as the difference to old, until the differences since the last whole node outweigh it: so both what is
// stored for a step and what is read for a checkpoint stay in proportion to what it holds.
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

// step is the work of recording one checkpoint.
type step struct {
	tx     Tx
	f      *Facts
	parent *Row
	old    *state

	prefix int     // items of old.list that the new list begins with
	slots  []*slot // the rest of the new list
	// gone are items of old.list that are not in the new list; removed and condensed are how they were judged.
	gone    []*item
	removed map[Seq]*item // also entries of the transcript that went along
	reset   bool
	// condensed messages, in the order of the list, and the slot of their summary, nil when it is no message
	condensed []*item
	summary   *slot
	// compared: the value was read and compared with the old list. unreadable: it could not be, and this is what it says it is.
	compared   bool
	unreadable string
	shown      bool // the value came as JSON, as clients see it

	marker   *item   // put into the transcript
	lost     *item   // put at the end of the transcript for a value that could not be read
	nameless []*item // new messages without id
	events   []*Event
}

// slot is a message of the new list, and what it turned out to be.
type slot struct {
	raw     []byte
	hash    uint64
	digest  [16]byte
	message jsonplus.Message
	text    []byte // the message as JSON, if there will be an event of it
	was     *item  // the same message in the parent's transcript or list; nil: it is new
	revised bool   // other content than was
	hidden  bool   // new, and a summary
	// unreadable names what could not be read; "" for messages
	unreadable string
	it         *item // what it is in the new list
}

// read compares the new list with the old one; ok is false when the checkpoint holds something else than messages.
func (s *step) read() (ok bool, err error) {
	if s.parent != nil && s.parent.Version == s.f.Version {
		s.prefix = len(s.old.list)
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
	if ok, err = s.resolve(items); ok {
		s.compared = true
	}
	return ok, err
}

// resolve finds out which messages of the new list are known. It fills prefix, slots and gone; ok is false when there is
// something in the list that is no message.
func (s *step) resolve(items [][]byte) (ok bool, err error) {
	old := s.old.list
	for s.prefix < len(old) && s.prefix < len(items) {
		it := s.same(old[s.prefix], items[s.prefix])
		if it == nil {
			break
		}
		old[s.prefix] = it
		s.prefix++
	}
	if s.prefix < len(old) {
		// What begins alike may still be other messages of the same words: those without id are aligned as a whole.
		if i := slices.IndexFunc(old[:s.prefix], func(it *item) bool { return it.anonymous }); i >= 0 {
			s.prefix = i
		}
	}
	rest := old[s.prefix:]
	matched := make(map[Seq]bool, len(rest)) // items of rest, true once they are found in the new list
	for _, it := range rest {
		matched[it.Seq] = false
	}
	var before map[string]bool // ids of the prefix, made when it must be asked
	seen := map[string]bool{}
	var nameless []*slot
	for _, raw := range items[s.prefix:] {
		sl := &slot{raw: raw, hash: quickHash(raw), digest: digestOf(raw)}
		if ok = s.parse(sl); !ok {
			return false, nil
		}
		mid := sl.message.ID
		if mid == "" {
			nameless = append(nameless, sl)
			s.slots = append(s.slots, sl)
			continue
		}
		if seen[mid] {
			continue // an id is never in a list twice
		}
		seen[mid] = true
		if was := s.old.index[mid]; was != nil {
			if _, inRest := matched[was.Seq]; inRest {
				matched[was.Seq] = true
			} else if s.prefix > 0 {
				if before == nil {
					before = make(map[string]bool, s.prefix)
					for _, it := range old[:s.prefix] {
						before[it.id] = true
					}
				}
				if before[mid] {
					continue
				}
			}
			if err := s.known(sl, was); err != nil {
				return false, err
			}
		}
		s.slots = append(s.slots, sl)
	}
	if len(nameless) > 0 {
		var candidates []*item
		for _, it := range rest {
			if it.anonymous {
				candidates = append(candidates, it)
			}
		}
		align(candidates, nameless)
		for _, sl := range nameless {
			if sl.was != nil {
				matched[sl.was.Seq] = true
				sl.it = withHash(sl.was, sl.hash)
			}
		}
	}
	for _, sl := range s.slots {
		if sl.it == nil && sl.text == nil {
			s.show(sl)
		}
	}
	for _, it := range rest {
		if !matched[it.Seq] {
			s.gone = append(s.gone, it)
		}
	}
	return true, nil
}

// same gives it, or a copy that knows its hash, if raw is its message unchanged; else nil.
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

// known notes that a slot holds a message that the transcript or the list had.
func (s *step) known(sl *slot, was *item) error {
	sl.was = was
	if was.digest == sl.digest {
		sl.it = withHash(was, sl.hash)
		return nil
	}
	s.show(sl)
	if !was.Summary {
		// Stored in other bytes it may still say the same: a new version of a library writes fields in another order.
		before, err := s.tx.Content(s.f.Thread, was.Seq)
		if err != nil {
			return err
		}
		if string(sl.text) == string(before) {
			sl.it = withHash(was, sl.hash)
			return nil
		}
	}
	sl.revised = true
	return nil
}

func versionsOf(channels []TextChannel) string {
	if len(channels) == 0 {
		return ""
	}
	var b strings.Builder
	for _, c := range channels {
		b.WriteString(c.Name + "=" + c.Version + "\n")
	}
	return b.String()
}

// metadataOf is the metadata of an event.
func (s *step) metadataOf(revises *item) json.RawMessage {
	var b strings.Builder
	fmt.Fprintf(&b, `{"checkpoint_id":%q,"step":%d`, string(s.f.Checkpoint), s.f.Step)
	if revises != nil {
		fmt.Fprintf(&b, `,"revises":%d`, revises.Seq)
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}
