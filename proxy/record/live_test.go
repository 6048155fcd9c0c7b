package record_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/internal/talktest"
	"understudy/proxy"
)

// A conversation looks the same while it is streamed through the proxy as it does once it is recorded: when its run passes through the
// proxy, when it is joined, and when it saves at its end only.
func TestLiveIsRecorded(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"created", "joined", "exit"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			for seed := range seedtest.Seeds(40) {
				talk := talktest.New(talktest.Random(seed), 12)
				if drift(t, w, talk, way) == "" {
					continue
				}
				small := talk.Shrink(func(c talktest.Talk) bool { return drift(t, w, c, way) != "" })
				t.Fatalf("seed %d\n%s%s", seed, small, drift(t, w, small, way))
			}
		})
	}
}

// drift plays a talk on a thread of its own, and returns the first difference between what is shown live and afterwards.
func drift(t *testing.T, w *world, talk talktest.Talk, way string) string {
	t.Helper()
	w.u.mu.Lock()
	x := w.u.thread(id.NewThread())
	w.u.mu.Unlock()
	saved := make([]*checkpoint, len(talk))
	save := func(i, parent int) {
		s := talk[i]
		w.u.mu.Lock()
		defer w.u.mu.Unlock()
		var p *checkpoint
		if parent >= 0 {
			p = saved[parent]
		}
		c := w.u.save(x, p, s.Source, s.Run, spell(s))
		if s.Text != "" {
			c.Extra = fmt.Sprintf(`,"summary_text":%q`, s.Text)
		}
		saved[i] = c
		if s.Source == "input" {
			c.Next, c.Results = []string{"__start__"}, fmt.Sprintf(`[{"id":"t","name":"__start__","interrupts":[],"result":{"messages":%s}}]`, removals(called(talk, s.Run)))
		}
	}
	for i := 0; i < len(talk); i++ {
		s := talk[i]
		if s.Run == "" {
			save(i, s.Parent)
			continue
		}
		end := i // a run is one after the other
		for end < len(talk) && talk[end].Run == s.Run {
			end++
		}
		if diff := live(t, w, x, talk, saved, i, end, way, save); diff != "" {
			return diff
		}
		i = end - 1
	}
	return ""
}

// live streams the steps of a run.
func live(t *testing.T, w *world, x *talk, steps talktest.Talk, saved []*checkpoint, from, end int, way string, save func(i, parent int)) string {
	t.Helper()
	ctx := t.Context()
	s, by := steps[from], called(steps, steps[from].Run)
	kwargs := fmt.Sprintf(`{"input":{"messages":%s},"command":null}`, removals(by))
	if by.Command {
		kwargs = fmt.Sprintf(`{"input":null,"command":{"update":{"messages":%s}}}`, removals(by))
	}
	w.u.mu.Lock()
	x.runs[s.Run] = kwargs
	w.u.mu.Unlock()
	body := jsonOf(t, kwargs, "stream_mode", `["values"]`)
	if s.Parent >= 0 {
		body = jsonOf(t, body, "checkpoint_id", fmt.Sprintf("%q", saved[s.Parent].ID))
	}
	if way == "exit" {
		body = jsonOf(t, body, "durability", `"exit"`)
	}
	var run proxy.Run
	if way == "joined" {
		run = w.Join(ctx, w.call, x.id, id.Run(s.Run))
	} else {
		run, _ = w.Begin(ctx, w.call, x.id, []byte(body))
	}
	defer run.End(ctx)
	run.Event(ctx, "metadata", fmt.Appendf(nil, `{"run_id":%q}`, s.Run))
	shown := make([][]string, len(steps))
	for i := from; i < end; i++ {
		if way != "exit" {
			save(i, steps[i].Parent)
		}
		if steps[i].Source == "loop" {
			data := x.values(spell(steps[i]), extra(steps[i]))
			now, _ := run.Event(ctx, "values", []byte(data))
			shown[i] = lines(gjson.GetBytes(now, "messages"))
		}
	}
	first := from
	if way == "exit" {
		save(end-1, s.Parent)
		first = end - 1
	}
	for i := first; i < end; i++ {
		if steps[i].Source != "loop" {
			continue
		}
		state := w.State(ctx, w.call, x.id, false, []byte(x.state(saved[i], false)))
		if diff := cmp.Diff(lines(gjson.GetBytes(state, "values.messages")), shown[i]); diff != "" {
			return fmt.Sprintf("step %d (-recorded +live)\n%s", i, diff)
		}
	}
	if steps[end-1].Source == "loop" {
		fed, err := w.Messages(ctx, w.call, eventstore.PageQuery{Thread: x.id, Limit: 1000, At: id.Checkpoint(saved[end-1].ID)})
		require.NoError(t, err)
		ids := map[string]bool{}
		for _, row := range fed.Rows {
			ids[gjson.GetBytes(row.Content, "id").String()] = true
		}
		state := w.State(ctx, w.call, x.id, false, []byte(x.state(saved[end-1], false)))
		for _, m := range gjson.GetBytes(state, "values.messages").Array() {
			if mid := m.Get("id").String(); !ids[mid] {
				return fmt.Sprintf("%q is not the id of a message in the feed: %v", mid, ids)
			}
		}
	}
	if way == "exit" { // what comes after stands on the only checkpoint
		for i := from; i < end; i++ {
			saved[i] = saved[end-1]
		}
	}
	return ""
}

// called returns the step that has what a run was called with.
func called(steps talktest.Talk, run string) talktest.Step {
	i := slices.IndexFunc(steps, func(s talktest.Step) bool { return s.Run == run && len(s.Removed) > 0 })
	if i < 0 {
		return talktest.Step{}
	}
	return steps[i]
}

func removals(s talktest.Step) string {
	list := []string{}
	for _, mid := range s.Removed {
		list = append(list, fmt.Sprintf(`{"type":"remove","id":%q,"content":""}`, mid))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func extra(s talktest.Step) string {
	if s.Text == "" {
		return ""
	}
	return fmt.Sprintf(`,"summary_text":%q`, s.Text)
}

func jsonOf(t *testing.T, object, key, value string) string {
	t.Helper()
	fields := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal([]byte(object), &fields))
	fields[key] = json.RawMessage(value)
	out, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(out)
}

// spell returns the messages of a step as an upstream has them.
func spell(s talktest.Step) []string {
	list := []string{}
	for _, m := range s.List {
		kwargs, mid := "{}", "null"
		if m.Declared {
			kwargs = `{"lc_source":"summarization"}`
		}
		if m.ID != "" {
			mid = fmt.Sprintf("%q", m.ID)
		}
		list = append(list, fmt.Sprintf(`{"content":%q,"additional_kwargs":%s,"response_metadata":{},"type":%q,"name":null,"id":%s}`, m.Content, kwargs, m.Kind, mid))
	}
	return list
}

// lines returns what a person sees of messages.
func lines(messages gjson.Result) []string {
	out := []string{}
	for _, m := range messages.Array() {
		out = append(out, fmt.Sprint(m.Get("id"), " ", m.Get("type"), " ", m.Get("content"), " ", m.Get("additional_kwargs.summary_marker")))
	}
	return out
}
