package eventstore_test

import (
	"testing"

	"understudy/id"
)

// A summarizer may write its summary under the id of a message that it stands for. That message was not edited: it is kept as all that were
// condensed.
func TestSummaryUnderATakenID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		script []checkpoint
		want   []string
	}{
		{
			"the oldest's",
			[]checkpoint{{id: "a", messages: list(m1, m2, m3, m4)}, {id: "b", parent: "a", messages: list(summary("1", "sum"), m4)}},
			[]string{"one", "two", "three", "[3: sum]", "four"},
		},
		{
			"the newest's that goes",
			[]checkpoint{{id: "a", messages: list(m1, m2, m3, m4)}, {id: "b", parent: "a", messages: list(summary("3", "sum"), m4)}},
			[]string{"one", "two", "three", "[3: sum]", "four"},
		},
		{
			"the only one's that goes",
			[]checkpoint{{id: "a", messages: list(m1, m2)}, {id: "b", parent: "a", messages: list(summary("1", "sum"), m2)}},
			[]string{"one", "[1: sum]", "two"},
		},
		{
			"the system message's",
			[]checkpoint{{id: "a", messages: list(system("0", "rules"), m1, m2, m3)}, {id: "b", parent: "a", messages: list(summary("0", "sum"), m3)}},
			[]string{"rules", "one", "two", "[3: sum]", "three"},
		},
		{
			"again and again",
			[]checkpoint{
				{id: "a", messages: list(m1, m2, m3)},
				{id: "b", parent: "a", messages: list(summary("1", "sum"), m3)},
				{id: "c", parent: "b", messages: list(summary("1", "sum"), m3, m4)},
				{id: "d", parent: "c", messages: list(summary("1", "more"), m4)},
			},
			[]string{"one", "two", "[2: sum]", "three", "[1: more]", "four"},
		},
		{
			"of what was condensed before",
			[]checkpoint{
				{id: "a", messages: list(m1, m2, m3)},
				{id: "b", parent: "a", messages: list(summary("s", "sum"), m3)},
				{id: "c", parent: "b", messages: list(summary("1", "more"), m4)},
			},
			[]string{"one", "two", "[2: sum]", "three", "[1: more]", "four"},
		},
		{
			"a client's edit is one",
			[]checkpoint{{id: "a", messages: list(m1, m2)}, {id: "b", parent: "a", source: "update", messages: list(summary("1", "mine"), m2)}},
			[]string{"mine", "two"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			shows(t, c.script, c.want, func(m *memory, _ id.Checkpoint) { consistent(t, m) })
		})
	}
}
