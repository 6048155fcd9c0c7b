package eventstore_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/eventstore"
	"understudy/id"
)

// memory is a storage of one thread, for tests of the rules. Storages are tested by package storagetest.
type memory struct {
	events []*eventstore.Event
	rows   []*eventstore.Row
	nodes  []eventstore.Node
	writes map[id.Checkpoint][]eventstore.Value
	inputs map[id.Run][2]json.RawMessage
	values map[string]eventstore.Value // of the channel messages, by version
	cache  *eventstore.Cache
	loads  int // how often a state was read back
}

func newMemory() *memory {
	return &memory{
		writes: map[id.Checkpoint][]eventstore.Value{}, inputs: map[id.Run][2]json.RawMessage{},
		values: map[string]eventstore.Value{}, cache: eventstore.NewCache(),
	}
}

var _ eventstore.Tx = (*memory)(nil)

func (m *memory) AppendEvents(t id.Thread, events []*eventstore.Event) error {
	for _, e := range events {
		m.events = append(m.events, e)
		e.Thread, e.Seq = t, eventstore.Seq(len(m.events))
	}
	return nil
}

func (m *memory) CopyEvents(id.Thread, id.Thread) error    { panic("not here") }
func (m *memory) RollBackEvents(id.Thread, id.Run) error   { panic("not here") }
func (m *memory) Cache() *eventstore.Cache                 { return m.cache }
func (m *memory) PutTranscriptRow(r *eventstore.Row) error { m.rows = append(m.rows, r); return nil }

func (m *memory) row(ok func(*eventstore.Row) bool) *eventstore.Row {
	for _, r := range slices.Backward(m.rows) {
		if ok(r) {
			return r
		}
	}
	return nil
}

func (m *memory) TranscriptRow(_ id.Thread, c id.Checkpoint) (*eventstore.Row, error) {
	return m.row(func(r *eventstore.Row) bool { return r.Checkpoint == c }), nil
}

func (m *memory) TranscriptOfVersion(_ id.Thread, version string) (*eventstore.Row, error) {
	return m.row(func(r *eventstore.Row) bool { return r.Version == version }), nil
}

func (m *memory) PutNode(_ id.Thread, n *eventstore.Node) error {
	n.ID = int64(len(m.nodes) + 1)
	m.nodes = append(m.nodes, *n)
	return nil
}

func (m *memory) Nodes(_ id.Thread, node int64) ([]eventstore.Node, error) {
	m.loads++
	var chain []eventstore.Node
	for ; node != 0; node = m.nodes[node-1].Base {
		chain = append(chain, m.nodes[node-1])
	}
	slices.Reverse(chain)
	return chain, nil
}

func (m *memory) Heads(_ id.Thread, ranges []eventstore.Range) ([]eventstore.Head, error) {
	var heads []eventstore.Head
	for _, r := range ranges {
		for s := r.From; s <= r.To; s++ {
			e := m.events[s-1]
			heads = append(heads, eventstore.Head{Seq: s, First: e.First, Type: e.Type, MessageID: e.MessageID, Digest: e.Digest, Anonymous: e.Anonymous})
		}
	}
	return heads, nil
}

func (m *memory) Content(_ id.Thread, s eventstore.Seq) ([]byte, error) {
	return m.events[s-1].Content, nil
}

func (m *memory) ChannelValue(_ id.Thread, _, version string) (string, []byte, error) {
	v := m.values[version]
	return v.Type, v.Data, nil
}

func (m *memory) ClientWrites(_ id.Thread, c id.Checkpoint, _ string) ([]eventstore.Value, error) {
	return m.writes[c], nil
}

func (m *memory) RunInput(r id.Run) (json.RawMessage, json.RawMessage, error) {
	return m.inputs[r][0], m.inputs[r][1], nil
}

// message is one as a test writes it: {type, id, content[, lc_source]}; an empty id is null.
type message struct{ kind, id, content, source string }

func human(id, content string) message  { return message{kind: "human", id: id, content: content} }
func ai(id, content string) message     { return message{kind: "ai", id: id, content: content} }
func tool(id, content string) message   { return message{kind: "tool", id: id, content: content} }
func system(id, content string) message { return message{kind: "system", id: id, content: content} }
func summary(id, content string) message {
	return message{kind: "human", id: id, content: content, source: "summarization"}
}
func remove(id string) message { return message{kind: "remove", id: id} }

// pack returns a list of messages as JsonPlusSerializer stores it.
func pack(messages ...message) []byte {
	out := msgp.AppendArrayHeader(nil, uint32(len(messages)))
	for _, m := range messages {
		out = m.pack(out)
	}
	return out
}

func (m message) pack(out []byte) []byte {
	var p []byte
	p = msgp.AppendArrayHeader(p, 4)
	p = msgp.AppendString(p, "langchain_core.messages."+m.kind)
	p = msgp.AppendString(p, m.kind)
	p = msgp.AppendMapHeader(p, 4)
	p = msgp.AppendString(p, "content")
	p = msgp.AppendString(p, m.content)
	p = msgp.AppendString(p, "additional_kwargs")
	if m.source == "" {
		p = msgp.AppendMapHeader(p, 0)
	} else {
		p = msgp.AppendMapHeader(p, 1)
		p = msgp.AppendString(p, "lc_source")
		p = msgp.AppendString(p, m.source)
	}
	p = msgp.AppendString(p, "type")
	p = msgp.AppendString(p, m.kind)
	p = msgp.AppendString(p, "id")
	if m.id == "" {
		p = msgp.AppendNil(p)
	} else {
		p = msgp.AppendString(p, m.id)
	}
	p = msgp.AppendString(p, "model_construct")
	out = append(out, 0xc9, byte(len(p)>>24), byte(len(p)>>16), byte(len(p)>>8), byte(len(p)), 5)
	return append(out, p...)
}

// shown returns what a person sees at a checkpoint, one text each: the content of messages, "[count: text]" for markers.
func shown(t *testing.T, m *memory, c id.Checkpoint) []string {
	t.Helper()
	tr := transcript(t, m, c)
	out := []string{}
	for _, e := range tr.Entries {
		ev := m.events[e.Seq-1]
		if !e.Summary {
			require.Equal(t, eventstore.CategoryMessage, ev.Category)
			var msg struct{ Content string }
			require.NoError(t, json.Unmarshal(ev.Content, &msg))
			out = append(out, msg.Content)
			continue
		}
		var s eventstore.Summary
		require.NoError(t, json.Unmarshal(ev.Content, &s))
		require.NotEmpty(t, s.IDs)
		out = append(out, "["+string(rune('0'+s.ReplacedCount))+": "+s.Summary+"]")
	}
	return out
}

func transcript(t *testing.T, m *memory, c id.Checkpoint) *eventstore.Transcript {
	t.Helper()
	row, err := m.TranscriptRow("", c)
	require.NoError(t, err)
	require.NotNil(t, row, "nothing was recorded for checkpoint %s", c)
	require.False(t, row.Opaque)
	nodes, err := m.Nodes("", row.Node)
	require.NoError(t, err)
	tr, err := eventstore.Fold(row, nodes)
	require.NoError(t, err)
	return tr
}
