package eventstore_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/eventstore"
	"understudy/id"
)

// items returns a list of packed values.
func items(raw ...[]byte) []byte {
	out := msgp.AppendArrayHeader(nil, uint32(len(raw)))
	for _, r := range raw {
		out = append(out, r...)
	}
	return out
}

// What cannot be read is named where it stood, and everything else stays readable.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	one, two := m1.pack(nil), m2.pack(nil)
	foreign := []byte{0xd4, 9, 1}                                          // an extension of LangGraph's successor
	broken := append([]byte{0xc7, 12, 5, 0x94}, "\xa3lib\xa3Cls\xc1xx"...) // an object whose fields are no msgpack
	broken[1] = byte(len(broken) - 3)
	pickle := &eventstore.Value{Type: "pickle", Data: []byte("\x80\x04]\x94.")}
	sealed := &eventstore.Value{Type: "msgpack+aes", Data: []byte{1, 2, 3}}
	const item, value = "[This message cannot be read: ", "[What was said here cannot be read: "
	four := checkpoint{id: "a", messages: list(m1, m2, m3, m4)}
	for _, c := range []struct {
		name   string
		script []checkpoint
		want   []string
	}{
		{"a message of an unknown extension", []checkpoint{{id: "a", raw: items(one, foreign, two)}}, []string{"one", item + "msgpack extension 9]", "two"}},
		{"an object that is corrupt", []checkpoint{{id: "a", raw: items(one, broken)}}, []string{"one", item + "lib.Cls, corrupt]"}},
		{
			"it is one of its kind, and stays in its place",
			[]checkpoint{{id: "a", raw: items(one, foreign, foreign)}, {id: "b", parent: "a", raw: items(one, foreign, foreign, two)}},
			[]string{"one", item + "msgpack extension 9]", item + "msgpack extension 9]", "two"},
		},
		{
			"it is condensed like any other",
			[]checkpoint{{id: "a", raw: items(one, foreign, two)}, {id: "b", parent: "a", messages: list(summary("s", "sum"), m2)}},
			[]string{"one", item + "msgpack extension 9]", "[2: sum]", "two"},
		},
		{"a pickle", []checkpoint{four, {id: "b", parent: "a", value: pickle}}, []string{"one", "two", "three", "four", value + "pickle]"}},
		{"from the beginning", []checkpoint{{id: "a", value: sealed}}, []string{value + "msgpack+aes]"}},
		{"a list that breaks off", []checkpoint{{id: "a", raw: items(one, two)[:20]}}, []string{value + "msgpack, corrupt]"}},
		{"json that breaks off", []checkpoint{{id: "a", value: &eventstore.Value{Type: "json", Data: []byte(`[{"type":`)}}}, []string{value + "json, corrupt]"}},
		{
			"several in a row are one",
			[]checkpoint{four, {id: "b", parent: "a", value: pickle}, {id: "c", parent: "b", value: pickle}},
			[]string{"one", "two", "three", "four", value + "pickle]"},
		},
		{
			"of two types are two",
			[]checkpoint{four, {id: "b", parent: "a", value: pickle}, {id: "c", parent: "b", value: sealed}},
			[]string{"one", "two", "three", "four", value + "pickle]", value + "msgpack+aes]"},
		},
		{
			"what can be read again needs no name",
			[]checkpoint{four, {id: "b", parent: "a", value: pickle}, {id: "c", parent: "b", value: sealed}, {id: "d", parent: "c", messages: list(m1, m2, m3, m4, m5)}},
			[]string{"one", "two", "three", "four", "five"},
		},
		{
			"what was condensed meanwhile keeps it",
			[]checkpoint{four, {id: "b", parent: "a", value: pickle}, {id: "c", parent: "b", messages: list(summary("s", "sum"), m4, m5)}, {id: "d", parent: "c", messages: list(summary("s", "sum"), m4, m5, m6)}},
			[]string{"one", "two", "three", "[3: sum]", "four", value + "pickle]", "five", "six"},
		},
		{
			"a reset takes it along",
			[]checkpoint{four, {id: "b", parent: "a", value: pickle}, {id: "c", parent: "b", source: "update", messages: list(m5)}},
			[]string{"five"},
		},
		{
			"the older json",
			[]checkpoint{{id: "a", value: &eventstore.Value{Type: "json", Data: []byte(
				`[{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"one","type":"human","id":"1"}},
				  {"type":"ai","content":"two","id":"2"}]`)}}, {id: "b", parent: "a", messages: list(m1, m2, m3)}},
			[]string{"one", "two", "three"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			shows(t, c.script, c.want, func(m *memory, last id.Checkpoint) {
				ids := map[string]bool{}
				for _, e := range transcript(t, m, last).Entries {
					ev := m.events[e.Seq-1]
					require.False(t, ids[ev.MessageID], "ids are unique")
					ids[ev.MessageID] = true
					if text := gjson.GetBytes(ev.Content, "content").String(); strings.Contains(text, "cannot be read") {
						require.Equal(t, eventstore.TypeMessage, ev.Type)
						require.Equal(t, "system", gjson.GetBytes(ev.Content, "type").String(), "every client knows the type")
						require.Equal(t, ev.MessageID, gjson.GetBytes(ev.Content, "id").String())
						require.Contains(t, text, gjson.GetBytes(ev.Content, "additional_kwargs.unreadable").String())
					}
				}
			})
		})
	}
}
