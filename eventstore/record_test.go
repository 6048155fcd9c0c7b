package eventstore_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checkpoint is one of a script. Its messages nil: the channel is as in the parent.
type checkpoint struct {
	id, parent string
	run        string // "r" if empty
	source     string // "loop" if empty
	messages   []message
	raw        []byte            // in place of messages
	value      *eventstore.Value // likewise
	summary    string            // text of the channel summary_text, changed in this step
	writes     []message
	input      string // JSON of the run
	command    string
	deleted    []string
	words      string
}

func (c checkpoint) facts(m *memory) eventstore.Facts {
	f := eventstore.Facts{
		Thread: "t", Checkpoint: id.Checkpoint(c.id), Parent: id.Checkpoint(c.parent), Run: id.Run(c.run), Source: c.source,
		Deleted: c.deleted, Words: c.words,
	}
	if f.Run == "" {
		f.Run = "r"
	}
	if f.Source == "" {
		f.Source = "loop"
	}
	if f.Source == "update" || f.Source == "fork" {
		f.Run = ""
	}
	switch {
	case c.value != nil:
		f.Version, f.Messages = "v"+c.id, c.value
	case c.raw != nil:
		f.Version, f.Messages = "v"+c.id, &eventstore.Value{Type: "msgpack", Data: c.raw}
	case c.messages != nil:
		f.Version, f.Messages = "v"+c.id, &eventstore.Value{Type: "msgpack", Data: pack(c.messages...)}
	case c.parent != "":
		if row, _ := m.TranscriptRow("t", f.Parent); row != nil {
			f.Version = row.Version
		}
	}
	if c.summary != "" {
		f.Channels = []eventstore.TextChannel{{Name: "summary_text", Version: "s" + c.id, Text: c.summary}}
	}
	if c.writes != nil {
		m.writes[f.Parent] = []eventstore.Value{{Type: "msgpack", Data: pack(c.writes...)}}
	}
	if c.input != "" || c.command != "" {
		m.inputs[f.Run] = [2]json.RawMessage{json.RawMessage(c.input), json.RawMessage(c.command)}
	}
	return f
}

func play(t testing.TB, m *memory, script []checkpoint) {
	t.Helper()
	for _, c := range script {
		require.NoError(t, eventstore.Record(m, c.facts(m)), "checkpoint %s", c.id)
	}
}

// shows plays a script and compares what is shown of its last checkpoint, once with what each step leaves in memory, once with everything read back.
func shows(t *testing.T, script []checkpoint, want []string, check func(m *memory, last id.Checkpoint)) {
	t.Helper()
	for _, forget := range []bool{false, true} {
		m := newMemory()
		for _, step := range script {
			if forget {
				m.cache = eventstore.NewCache()
			}
			play(t, m, []checkpoint{step})
		}
		last := id.Checkpoint(script[len(script)-1].id)
		if diff := cmp.Diff(want, shown(t, m, last)); diff != "" {
			t.Fatalf("forget=%v (-want +got)\n%s", forget, diff)
		}
		check(m, last)
	}
}

var (
	m1, m2, m3, m4 = human("1", "one"), ai("2", "two"), human("3", "three"), ai("4", "four")
	m5, m6         = human("5", "five"), ai("6", "six")
	sys            = system("sys", "be kind")
)

func list(ms ...message) []message { return append([]message{}, ms...) }

func TestRecord(t *testing.T) {
	t.Parallel()
	four := checkpoint{id: "a", messages: list(m1, m2, m3, m4)}
	condensed := checkpoint{id: "b", parent: "a", messages: list(summary("s", "sum"), m3, m4)}
	for _, c := range []struct {
		name   string
		script []checkpoint
		want   []string // what is shown at the last checkpoint
		events []string // types of the last checkpoint's events; nil: not looked at
	}{
		{
			"new messages go to the end",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m1, m2, m3, m4, m5, m6)}},
			[]string{"one", "two", "three", "four", "five", "six"},
			[]string{"llm.human.input", "llm.ai.response"},
		},
		{
			"kinds of messages",
			[]checkpoint{{id: "a", messages: list(sys, m1, m2, tool("t", "found"), message{kind: "chat", id: "c", content: "hm"})}},
			[]string{"be kind", "one", "two", "found", "hm"},
			[]string{"llm.system.input", "llm.human.input", "llm.ai.response", "llm.tool.result", "llm.message"},
		},
		{
			"nothing changed",
			[]checkpoint{four, {id: "b", parent: "a"}},
			[]string{"one", "two", "three", "four"},
			[]string{},
		},
		{
			"another version with the same content",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m1, m2, m3, m4)}},
			[]string{"one", "two", "three", "four"},
			[]string{},
		},
		{
			"saved again",
			[]checkpoint{four, four},
			[]string{"one", "two", "three", "four"},
			[]string{},
		},
		{
			"a message in the middle goes after its predecessor",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m1, m2, m5, m3, m4)}},
			[]string{"one", "two", "five", "three", "four"},
			nil,
		},
		{
			// deepagents rewrites the whole list and inserts answers to interrupted tool calls: nothing was condensed.
			"a list that is rewritten with a message put in is no summary",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m1, m2, tool("t", "cut off"), m3, m4)}},
			[]string{"one", "two", "cut off", "three", "four"},
			[]string{"llm.tool.result"},
		},
		{
			"a message at the beginning",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(sys, m1, m2, m3, m4)}},
			[]string{"be kind", "one", "two", "three", "four"},
			nil,
		},
		{
			"an edited message is replaced in place",
			[]checkpoint{four, {id: "b", parent: "a", source: "update", messages: list(m1, ai("2", "edited"), m3, m4)}},
			[]string{"one", "edited", "three", "four"},
			[]string{"llm.ai.response"},
		},
		{
			"an edited message that had been condensed is shown once, in place",
			[]checkpoint{four, condensed, {id: "c", parent: "b", source: "update", messages: list(summary("s", "sum"), m3, m4, ai("2", "edited"))}},
			[]string{"one", "edited", "[2: sum]", "three", "four"},
			[]string{"llm.ai.response"},
		},
		{
			"a condensed message that comes back is no event",
			[]checkpoint{four, condensed, {id: "c", parent: "b", messages: list(summary("s", "sum"), m3, m4, m2)}},
			[]string{"one", "two", "[2: sum]", "three", "four"},
			[]string{},
		},
		{
			"an id twice in a list",
			[]checkpoint{{id: "a", messages: list(m1, m2, m1)}},
			[]string{"one", "two"},
			nil,
		},

		// rule 1
		{
			"removed by an update",
			[]checkpoint{four, {id: "b", parent: "a", source: "update", messages: list(m2, m3, m4)}},
			[]string{"two", "three", "four"},
			[]string{"message_removed"},
		},
		{
			"condensed by an update: its summary stands for what went",
			[]checkpoint{four, {id: "b", parent: "a", source: "update", messages: list(summary("s", "sum"), m3, m4)}},
			[]string{"one", "two", "[2: sum]", "three", "four"},
			nil,
		},
		{
			"removed by an update, later than the summary",
			[]checkpoint{four, condensed, {id: "c", parent: "b", source: "update", messages: list(summary("s", "sum"), m4)}},
			[]string{"one", "two", "[2: sum]", "four"},
			nil,
		},
		{
			"removed by a fork",
			[]checkpoint{four, {id: "b", parent: "a", source: "fork", messages: list(m3, m4)}},
			[]string{"three", "four"},
			[]string{"message_removed"},
		},
		{
			"removed by the input, seen in the writes of __start__",
			[]checkpoint{
				four,
				{id: "b", parent: "a", source: "input", run: "r2"},
				{id: "c", parent: "b", run: "r2", messages: list(m2, m3, m4, m5), writes: list(remove("1"), m5)},
			},
			[]string{"two", "three", "four", "five"},
			[]string{"message_removed", "llm.human.input"},
		},
		{
			"removed by the input of the run, when no writes were stored",
			[]checkpoint{four, {
				id: "b", parent: "a", run: "r2", messages: list(m2, m3, m4, m5),
				input: `{"messages":[{"type":"remove","id":"1"},{"type":"human","id":"5","content":"five"}]}`,
			}},
			[]string{"two", "three", "four", "five"},
			nil,
		},
		{
			"removed by the update of a command",
			[]checkpoint{four, {
				id: "b", parent: "a", run: "r2", messages: list(m2, m3, m4),
				command: `{"resume":1,"update":[["messages",[{"lc":1,"type":"constructor","id":["langchain","schema","messages","RemoveMessage"],"kwargs":{"id":"1"}}]]]}`,
			}},
			[]string{"two", "three", "four"},
			nil,
		},
		{
			"a later step of the run that named everything condenses all the same",
			[]checkpoint{
				four,
				{id: "b", parent: "a", source: "input", run: "r2"},
				{
					id: "c", parent: "b", run: "r2", messages: list(m3, m4, m5, m6),
					input: `{"messages":[{"type":"remove","id":"__remove_all__"}]}`,
				},
				{id: "d", parent: "c", run: "r2", messages: list(summary("s", "sum"), m6)},
			},
			[]string{"three", "four", "five", "[3: sum]", "six"},
			nil,
		},
		{
			"a client's removal and a summary in one checkpoint",
			[]checkpoint{four, {
				id: "b", parent: "a", run: "r2", messages: list(summary("s", "sum"), m4),
				input: `{"messages":[{"type":"remove","id":"1"}]}`,
			}},
			[]string{"two", "three", "[2: sum]", "four"},
			[]string{"message_removed", "middleware:summarize"},
		},
		{
			"what a person deleted stays so after a summary",
			[]checkpoint{
				four,
				{id: "b", parent: "a", source: "update", messages: list(m1, m3, m4)},
				{id: "c", parent: "b", messages: list(summary("s", "sum"), m4)},
			},
			[]string{"one", "three", "[2: sum]", "four"},
			nil,
		},

		// rule 2
		{
			"condensed by the middleware",
			[]checkpoint{four, condensed},
			[]string{"one", "two", "[2: sum]", "three", "four"},
			[]string{"middleware:summarize"},
		},
		{
			"the middleware keeps nothing",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(summary("s", "sum"))}},
			[]string{"one", "two", "three", "four", "[4: sum]"},
			nil,
		},
		{
			"the middleware and new messages in one checkpoint",
			[]checkpoint{four, {id: "b", parent: "a", run: "r2", messages: list(summary("s", "sum"), m4, m5, m6)}},
			[]string{"one", "two", "three", "[3: sum]", "four", "five", "six"},
			nil,
		},
		{
			"the middleware leaves the system message in place",
			[]checkpoint{
				{id: "a", messages: list(sys, m1, m2, m3, m4)},
				{id: "b", parent: "a", messages: list(sys, summary("s", "sum"), m4)},
			},
			[]string{"be kind", "one", "two", "three", "[3: sum]", "four"},
			nil,
		},
		{
			"an earlier summary folded into a later one does not count",
			[]checkpoint{
				four, condensed,
				{id: "c", parent: "b", messages: list(summary("s", "sum"), m3, m4, m5, m6)},
				{id: "d", parent: "c", messages: list(summary("s2", "sum of sum"), m5, m6)},
			},
			[]string{"one", "two", "[2: sum]", "three", "four", "[2: sum of sum]", "five", "six"},
			[]string{"middleware:summarize"},
		},
		{
			"a summary of nothing but a summary is hidden and leaves no marker",
			[]checkpoint{four, condensed, {id: "c", parent: "b", messages: list(summary("s2", "again"), m3, m4)}},
			[]string{"one", "two", "[2: sum]", "three", "four"},
			nil,
		},
		{
			"a summary that replaced nothing is hidden",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(summary("s", "sum"), m1, m2, m3, m4)}},
			[]string{"one", "two", "three", "four"},
			nil,
		},
		{
			"the words of the custom event",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(summary("s", "sum"), m3, m4), words: "in other words"}},
			[]string{"one", "two", "[2: in other words]", "three", "four"},
			nil,
		},

		// rule 3
		{
			"condensed by shape: a single new message before the first kept one",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(system("x", "so far"), m3, m4, m5)}},
			[]string{"one", "two", "[2: so far]", "three", "four", "five"},
			[]string{"middleware:summarize", "llm.human.input"},
		},
		{
			"by shape, behind the system message",
			[]checkpoint{
				{id: "a", messages: list(sys, m1, m2, m3, m4)},
				{id: "b", parent: "a", messages: list(sys, ai("x", "so far"), m3, m4)},
			},
			[]string{"be kind", "one", "two", "[2: so far]", "three", "four"},
			nil,
		},
		{
			"a summary found by shape is remembered",
			[]checkpoint{
				four,
				{id: "b", parent: "a", messages: list(human("x", "so far"), m3, m4)},
				{id: "c", parent: "b", messages: list(human("x", "so far"), m3, m4, m5)},
				{id: "d", parent: "c", messages: list(human("y", "and then"), m4, m5)},
			},
			[]string{"one", "two", "[2: so far]", "three", "[1: and then]", "four", "five"},
			nil,
		},
		{
			"two new messages are no summary",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(human("x", "x"), ai("y", "y"), m4)}},
			[]string{"x", "y", "one", "two", "three", "[3: ]", "four"},
			nil,
		},
		{
			"trimmed without a summary",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m3, m4)}},
			[]string{"one", "two", "[2: ]", "three", "four"},
			nil,
		},
		{
			"the text of the channel",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m3, m4), summary: "apart"}},
			[]string{"one", "two", "[2: apart]", "three", "four"},
			nil,
		},
		{
			"a summary that goes on under its id",
			[]checkpoint{
				four,
				{id: "b", parent: "a", messages: list(human("x", "so far"), m3, m4)},
				{id: "c", parent: "b", messages: list(human("x", "so far, and more"), m4, m5)},
			},
			[]string{"one", "two", "[2: so far]", "three", "[1: so far, and more]", "four", "five"},
			nil,
		},
		{
			"a summary that says something else of the same messages",
			[]checkpoint{
				four,
				{id: "b", parent: "a", messages: list(human("x", "so far"), m3, m4)},
				{id: "c", parent: "b", messages: list(human("x", "better"), m3, m4)},
			},
			[]string{"one", "two", "[2: better]", "three", "four"},
			[]string{"middleware:summarize"},
		},
		{
			"nothing but the system message stays: a reset",
			[]checkpoint{{id: "a", messages: list(sys, m1, m2)}, {id: "b", parent: "a", messages: list(sys)}},
			[]string{"be kind"},
			[]string{"message_removed"},
		},

		// rule 4
		{
			"newer ones went",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m1, m2)}},
			[]string{"one", "two"},
			[]string{"message_removed"},
		},
		{
			"a reset with nothing kept",
			[]checkpoint{four, {id: "b", parent: "a", messages: list()}},
			[]string{},
			[]string{"message_removed"},
		},
		{
			"a reset that begins anew",
			[]checkpoint{four, condensed, {id: "c", parent: "b", messages: list(m5)}},
			[]string{"five"},
			[]string{"message_removed", "llm.human.input"},
		},
		{
			"a reset takes condensed messages along that have no summary in the list",
			[]checkpoint{four, {id: "b", parent: "a", messages: list(m4), summary: "apart"}, {id: "c", parent: "b", source: "update", messages: list()}},
			[]string{},
			nil,
		},
		{
			"deleting the summary takes along what it stands for",
			[]checkpoint{four, condensed, {id: "c", parent: "b", source: "update", messages: list(m3, m4)}},
			[]string{"three", "four"},
			nil,
		},
		{
			"a deletion that the graph is not told of",
			[]checkpoint{four, condensed, {id: "c", parent: "b", source: "update", deleted: []string{"1", "3"}}},
			[]string{"two", "[2: sum]", "three", "four"},
			[]string{"message_removed"},
		},

		// lineage
		{
			"a fork shows its own lineage",
			[]checkpoint{
				{id: "a", messages: list(m1, m2)},
				{id: "b", parent: "a", messages: list(m1, m2, m3, m4)},
				{id: "c", parent: "b", messages: list(summary("s", "sum"), m4)},
				{id: "d", parent: "a", run: "r2", messages: list(m1, m2, m5)},
			},
			[]string{"one", "two", "five"},
			nil,
		},
		{
			"regenerated: the same question, another answer",
			[]checkpoint{
				{id: "a", messages: list(m1)},
				{id: "b", parent: "a", messages: list(m1, m2)},
				{id: "c", parent: "a", source: "fork"},
				{id: "d", parent: "c", run: "r2", messages: list(m1, ai("2b", "deux"))},
			},
			[]string{"one", "deux"},
			[]string{"llm.ai.response"},
		},
		{
			"a copied checkpoint is what its original is, though its parent is the original's",
			[]checkpoint{
				four, condensed,
				{id: "c", parent: "a", source: "fork", messages: list(summary("s", "sum"), m3, m4)},
			},
			[]string{"one", "two", "[2: sum]", "three", "four"},
			nil,
		},
		{
			"a checkpoint before there were messages",
			[]checkpoint{{id: "a", source: "input"}, {id: "b", parent: "a", messages: list(m1)}},
			[]string{"one"},
			nil,
		},
		{
			"no parent known: all is new, and summaries are hidden",
			[]checkpoint{{id: "b", parent: "a", messages: list(summary("s", "sum"), m3, m4)}},
			[]string{"three", "four"},
			nil,
		},

		// ids that are null
		{
			"equal messages without ids are different ones",
			[]checkpoint{
				{id: "a", messages: list(human("", "ok"), ai("", "fine"))},
				{id: "b", parent: "a", messages: list(human("", "ok"), ai("", "fine"), human("", "ok"))},
			},
			[]string{"ok", "fine", "ok"},
			[]string{"llm.human.input"},
		},
		{
			"messages without ids, the oldest of which went",
			[]checkpoint{
				{id: "a", messages: list(human("", "ok"), ai("", "fine"), human("", "ok"))},
				{id: "b", parent: "a", messages: list(system("", "sum"), human("", "ok"))},
			},
			[]string{"ok", "fine", "[2: sum]", "ok"},
			nil,
		},
		{
			"a message without id that was removed and is said again",
			[]checkpoint{
				{id: "a", messages: list(human("", "ok"), ai("", "fine"))},
				{id: "b", parent: "a", source: "update", messages: list(ai("", "fine"))},
				{id: "c", parent: "b", messages: list(ai("", "fine"), human("", "ok"))},
			},
			[]string{"fine", "ok"},
			nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Once with what the step before left in memory, once with everything read back.
			for _, forget := range []bool{false, true} {
				m := newMemory()
				last := c.script[len(c.script)-1]
				for i, step := range c.script {
					if i == len(c.script)-1 && c.name[:8] == "a copied" {
						m.rows[len(m.rows)-1].Version = "v" + step.id // the version of the blob is what a copy shares
					}
					before := len(m.events)
					play(t, m, []checkpoint{step})
					if forget {
						m.cache = eventstore.NewCache()
					}
					if i == len(c.script)-1 && c.events != nil {
						got := []string{}
						for _, e := range m.events[before:] {
							got = append(got, e.Type)
						}
						require.Equal(t, c.events, got)
					}
				}
				if diff := cmp.Diff(c.want, shown(t, m, id.Checkpoint(last.id))); diff != "" {
					t.Fatalf("forget=%v (-want +got)\n%s", forget, diff)
				}
				consistent(t, m)
			}
		})
	}
}

// consistent checks what holds of every storage: seqs ascend without gaps, no transcript has an id twice, markers have ids of their own.
func consistent(t *testing.T, m *memory) {
	t.Helper()
	for i, e := range m.events {
		require.Equal(t, eventstore.Seq(i+1), e.Seq)
		require.True(t, gjson.ValidBytes(e.Content), "%s", e.Content)
		require.True(t, gjson.ValidBytes(e.Metadata), "%s", e.Metadata)
		require.LessOrEqual(t, len(e.Type), 32)
		require.LessOrEqual(t, len(e.Category), 16)
	}
	for _, r := range m.rows {
		if r.Opaque {
			continue
		}
		seen := map[string]bool{}
		for _, e := range transcript(t, m, r.Checkpoint).Entries {
			ev := m.events[e.Seq-1]
			mid := gjson.GetBytes(ev.Content, "id").String()
			require.NotEmpty(t, mid)
			require.False(t, seen[mid], "%s twice at %s", mid, r.Checkpoint)
			seen[mid] = true
		}
	}
}

func TestMarkers(t *testing.T) {
	t.Parallel()
	content := func(m *memory) string { return string(m.events[len(m.events)-1].Content) }
	m := newMemory()
	play(t, m, []checkpoint{
		{id: "a", messages: list(m1, m2, m3, m4)},
		{id: "b", parent: "a", messages: list(summary("s", "sum"), m3, m4)},
	})
	require.JSONEq(t, `{"id":"summary-marker-s","replaced_count":2,"summary":"sum","ids":["1","2"]}`, content(m))
	require.Equal(t, "s", m.events[4].MessageID)
	play(t, m, []checkpoint{{id: "c", parent: "b", messages: list(summary("s", "sum"), m4), summary: "apart"}})
	require.JSONEq(t, fmt.Sprintf(`{"id":"summary-marker-%s","replaced_count":1,"summary":"apart","ids":["3"]}`,
		uuid.NewSHA1(uuid.NameSpaceOID, []byte("3"))), content(m))
}

func TestRevises(t *testing.T) {
	t.Parallel()
	m := newMemory()
	play(t, m, []checkpoint{
		{id: "a", messages: list(m1, m2)},
		{id: "b", parent: "a", messages: list(m1, ai("2", "edited"))},
		{id: "c", parent: "b", messages: list(m1, ai("2", "again"))},
	})
	require.EqualValues(t, 2, gjson.GetBytes(m.events[2].Metadata, "revises").Int())
	require.EqualValues(t, 3, gjson.GetBytes(m.events[3].Metadata, "revises").Int())
	require.Equal(t, "b", gjson.GetBytes(m.events[2].Metadata, "checkpoint_id").String())
}

// Ids made from content are those that the proxy makes from JSON: digest of the message without id, then how many came before.
func TestAnonymousIDs(t *testing.T) {
	t.Parallel()
	m := newMemory()
	var script []checkpoint
	var messages []message
	for i := range 20 {
		messages = append(messages, human("", "ok"))
		script = append(script, checkpoint{id: fmt.Sprint(i), parent: fmt.Sprint(i - 1), messages: list(messages...)})
	}
	script[0].parent = ""
	play(t, m, script)
	seen := map[string]bool{}
	for i, e := range m.events {
		require.True(t, e.Anonymous)
		require.Equal(t, e.MessageID, gjson.GetBytes(e.Content, "id").String())
		require.False(t, seen[e.MessageID])
		seen[e.MessageID] = true
		want := eventstore.AnonymousID(t, e.Content, i)
		require.Equal(t, want, e.MessageID)
	}
}

func TestOpaque(t *testing.T) {
	t.Parallel()
	m := newMemory()
	play(t, m, []checkpoint{
		{id: "a", messages: list(m1, m2)},
		{id: "b", parent: "a", raw: []byte{0xa3, 'a', 'b', 'c'}},
		{id: "c", parent: "b", raw: []byte{0x92, 1, 2}},
	})
	for _, c := range []id.Checkpoint{"b", "c"} {
		row, err := m.TranscriptRow("t", c)
		require.NoError(t, err)
		require.True(t, row.Opaque)
	}
	play(t, m, []checkpoint{{id: "d", parent: "c", messages: list(m1, m2, m3)}})
	require.Equal(t, []string{"one", "two", "three"}, shown(t, m, "d"))
}

// Storage for a step does not depend on how long the thread is.
func TestGrowth(t *testing.T) {
	t.Parallel()
	m := newMemory()
	var messages []message
	bytes := func() (n int) {
		for _, node := range m.nodes {
			n += len(node.Data)
		}
		return n
	}
	var half int
	const steps = 1000
	for i := range steps {
		if i == steps/2 {
			half = bytes()
		}
		messages = append(messages, human(fmt.Sprint(i), "text"))
		if i%10 == 9 { // an edit breaks a range
			messages[len(messages)/2].content += "!"
		}
		c := checkpoint{id: fmt.Sprint(i), messages: list(messages...)}
		if i > 0 {
			c.parent = fmt.Sprint(i - 1)
		}
		play(t, m, []checkpoint{c})
	}
	require.Zero(t, m.loads, "no step reads back what the one before it knew")
	require.Less(t, float64(bytes()-half), 1.5*float64(half))
	require.Less(t, bytes()/steps, 60)
	t.Logf("%d bytes of nodes per step", bytes()/steps)
}

// Reading the facts of a checkpoint does not copy its values.
func TestFactsCopyNoValues(t *testing.T) {
	const size = 8 << 20
	p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
		Data: fmt.Appendf(nil, `{"ts":"2026-01-01T00:00:00Z","channel_versions":{"summary":"1","blob":"1"},"channel_values":{"blob":"%s","summary":"s"}}`,
			strings.Repeat("x", size)),
	}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	facts := eventstore.FactsOf(p)
	runtime.ReadMemStats(&after)
	require.Equal(t, []eventstore.TextChannel{{Name: "summary", Version: "1", Text: "s"}}, facts.Channels)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size/8))
}
