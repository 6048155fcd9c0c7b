package overlay

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/internal/seedtest"
)

func said(ids ...string) string {
	out := make([]string, len(ids))
	for i, mid := range ids {
		switch mid[0] {
		case '-':
			out[i] = fmt.Sprintf(`{"type":"remove","id":%q,"content":""}`, strings.TrimPrefix(mid[1:], " "))
		case 'S': // declares itself
			out[i] = fmt.Sprintf(`{"type":"human","id":%q,"content":"in short","additional_kwargs":{"lc_source":"summarization"}}`, mid)
		case 's':
			out[i] = fmt.Sprintf(`{"type":"system","id":%q,"content":"in short"}`, mid)
		case 'h':
			out[i] = fmt.Sprintf(`{"type":"human","id":%q,"content":"said %s"}`, mid, mid)
		case '*': // another content
			out[i] = fmt.Sprintf(`{"type":"human","id":%q,"content":"changed"}`, mid[1:])
		default:
			out[i] = fmt.Sprintf(`{"type":"ai","id":%q,"content":"answer %s"}`, mid, mid)
		}
	}
	return strings.Join(out, ",")
}

// after returns a Follow that has shown these states, one after the other.
func after(t testing.TB, states ...string) *Follow {
	t.Helper()
	look := Look{On: true, Updates: true, Markers: SystemMarkers, Key: "messages"}
	f := &Follow{look: look, at: &point{}, whole: true, ahead: Ahead{Grown: true}}
	for _, s := range states {
		_, err := f.Values(json.RawMessage(`{"messages":[` + said(strings.Fields(s)...) + `]}`))
		require.NoError(t, err)
	}
	return f
}

func listed(ids string) string { return `[` + said(strings.Fields(ids)...) + `]` }

func TestUpdates(t *testing.T) {
	t.Parallel()
	const all = "-__remove_all__ "
	for _, tt := range []struct {
		name   string
		states []string
		update string
		want   string // "": the same bytes
	}{
		{name: "an answer", states: []string{"h1"}, update: `{"model": {"messages": ` + listed("a1") + `}}`},
		{
			name: "everything but the newest", states: []string{"h1 a1", "h1 a1 h2 a2 h3"},
			update: `{"X.before_model": {"messages": ` + listed(all+"S1 a2 h3") + `, "n": 1}}`, want: `{"X.before_model": {"messages": [], "n": 1}}`,
		},
		{
			name: "a summary that does not declare itself", states: []string{"h1 a1 h2 a2 h3"},
			update: `{"x":{"messages":` + listed(all+"s1 h3") + `}}`, want: `{"x":{"messages":[]}}`,
		},
		{name: "one by one", states: []string{"h1 a1 h2 a2 h3"}, update: `{"x":{"messages":` + listed("-h1 -a1 -h2") + `}}`, want: `{"x":{"messages":[]}}`},
		{name: "one, in place of a list", states: []string{"h1 a1 h2"}, update: `{"x":{"messages":` + said("-h1") + `}}`, want: `{"x":{"messages":[]}}`},
		{
			name: "with an answer", states: []string{"h1 a1 h2 a2 h3"},
			update: `{"x":{"messages":` + listed(all+"S1 h3 a3") + `}}`, want: `{"x":{"messages":` + listed("a3") + `}}`,
		},
		{
			name: "with an edit of what is kept", states: []string{"h1 a1 h2 a2 h3"},
			update: `{"x":{"messages":` + listed(all+"S1 *h3") + `}}`, want: `{"x":{"messages":` + listed("*h3") + `}}`,
		},
		{
			name: "again", states: []string{"h1 a1 h2", "S1 h2", "S1 h2 a2 h3"},
			update: `{"x":{"messages":` + listed(all+"S2 h3") + `}}`, want: `{"x":{"messages":[]}}`,
		},
		{
			name: "several nodes", states: []string{"h1 a1 h2 a2 h3"},
			update: `{"y": null, "x":{"messages":` + listed(all+"S1 h3") + `}, "m" : {"messages":` + listed("a3") + `}, "n":{"k":[]}}`,
			want:   `{"y": null, "x":{"messages":[]}, "m" : {"messages":` + listed("a3") + `}, "n":{"k":[]}}`,
		},
		{
			name: "a list of updates", states: []string{"h1 a1 h2 a2 h3"},
			update: `{"x":[ {"n":1} , {"messages":` + listed("-h1 -a1") + `},{"messages" :` + listed("a3") + `}]}`,
			want:   `{"x":[ {"n":1} , {"messages":[]},{"messages" :` + listed("a3") + `}]}`,
		},
		{name: "a reset", states: []string{"h1 a1 h2"}, update: `{"x":{"messages":` + listed("-__remove_all__") + `}}`},
		{name: "a reset with a new beginning", states: []string{"h1 a1 h2"}, update: `{"x":{"messages":` + listed(all+"h9") + `}}`},
		{name: "the newest is removed", states: []string{"h1 a1 h2"}, update: `{"x":{"messages":` + listed("-h2") + `}}`},
		{name: "another key", states: []string{"h1 a1 h2"}, update: `{"x":{"others":` + listed("-h1") + `}}`},
		{name: "an interrupt", states: []string{"h1"}, update: `{"__interrupt__":[{"value":"remove","id":"\"remove\""}]}`},
		{name: "no messages", states: []string{"h1"}, update: `{"x":{"messages":"remove"},"y":{"messages":[1,null,"\"remove\""]}}`},
		{name: "nothing shown before", update: `{"x":{"messages":` + listed("-h1 a1") + `}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := after(t, tt.states...).Update(json.RawMessage(tt.update))
			require.NoError(t, err)
			if tt.want == "" {
				tt.want = tt.update
			}
			require.Equal(t, tt.want, string(out))
		})
	}
}

// reduced applies an update as LangGraph's add_messages does.
func reduced(list []string, update []string) []string {
	for i, mid := range update {
		if mid == "-__remove_all__" {
			list, update = nil, update[i+1:]
			break
		}
	}
	gone := map[string]bool{}
	out := append([]string{}, list...)
	for _, mid := range update {
		if mid[0] == '-' {
			gone[mid[1:]] = true
			continue
		}
		known := false
		for _, e := range out {
			known = known || e == mid
		}
		if !known {
			out = append(out, mid)
		}
	}
	kept := out[:0:0]
	for _, mid := range out {
		if !gone[mid] {
			kept = append(kept, mid)
		}
	}
	return kept
}

// For any step: a client that applies each shown update has the same list as one that sees each of the values, except for markers. An
// update differs from the graph's only where the values lost a message that a person still sees.
func TestUpdatesAgreeWithValues(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(3000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f := after(t, "")
		var model, person []string
		var trail []string
		for n := range 12 {
			update := []string{fmt.Sprintf("%c%d", "ha"[n%2], n)}
			if len(model) > 2 {
				keep := rnd.IntN(len(model))
				switch kind := rnd.IntN(6); {
				case kind < 2 && strings.Trim(strings.Join(model[max(keep, kind):], ""), "Ss0123456789") == "": // nothing of the conversation is kept
				case kind == 0:
					update = append([]string{"-__remove_all__", fmt.Sprintf("S%d", n)}, model[keep:]...)
				case kind == 1:
					update = append([]string{"-__remove_all__", fmt.Sprintf("s%d", n)}, model[max(keep, 1):]...)
				case kind == 2:
					update = nil
					for _, mid := range model[:keep] {
						update = append(update, "-"+mid)
					}
				case kind == 3:
					update = append([]string{"-" + model[0]}, update...)
				case kind == 4:
					update = []string{"-" + model[len(model)-1]}
				}
			}
			trail = append(trail, strings.Join(update, " "))
			event := json.RawMessage(`{"node":{"messages":[` + said(update...) + `]}}`)
			out, err := f.Update(event)
			require.NoError(t, err)
			var told []string
			for _, m := range gjson.GetBytes(out, "node.messages").Array() {
				mid := m.Get("id").String()
				if m.Get("type").String() == "remove" {
					mid = "-" + mid
				}
				told = append(told, mid)
			}
			model, person = reduced(model, update), reduced(person, told)
			if string(out) != string(event) {
				for _, mid := range told {
					require.Contains(t, "ha", mid[:1], "%d: %q", seed, trail)
				}
			}
			values := json.RawMessage(`{"messages":[` + said(model...) + `]}`)
			shown, err := f.Values(values)
			require.NoError(t, err)
			var seen []string
			for _, m := range gjson.GetBytes(shown, "messages").Array() {
				if !m.Get("additional_kwargs.summary_marker").Exists() {
					seen = append(seen, m.Get("id").String())
				}
			}
			require.ElementsMatch(t, seen, person, "%d: %q", seed, trail)
		}
	}
}
