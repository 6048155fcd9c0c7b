package pregel_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph/pregel"
	"understudy/id"
)

// The context of a run has the defaults of what it leaves out; one that JSON cannot hold is an error that says which option it came by.
func TestRunContext(t *testing.T) {
	t.Parallel()
	type settings struct {
		User  string `json:"user"`
		Limit int    `json:"limit" jsonschema:"default=7"`
	}
	type state struct {
		User  string `json:"user"`
		Limit int    `json:"limit"`
	}
	g := pregel.NewStateGraph[state]().AddNode("a", func(ctx context.Context, _ state) (any, error) {
		s, err := pregel.ContextOf[settings](ctx)
		return pregel.Values{"user": s.User, "limit": s.Limit}, err
	}).SetEntryPoint("a").MustCompile()
	for name, test := range map[string]struct {
		given any
		want  state
	}{
		"struct":  {settings{User: "ada", Limit: 3}, state{"ada", 3}},
		"map":     {map[string]any{"user": "ada"}, state{"ada", 7}},
		"pointer": {&settings{User: "ada", Limit: 1}, state{"ada", 1}},
		"nothing": {nil, state{"", 7}},
	} {
		out, err := pregel.Invoke[state](t.Context(), g, state{}, pregel.WithRunContext(test.given))
		require.NoError(t, err, name)
		require.Equal(t, test.want, out.State, name)
	}
	out, err := pregel.Invoke[state](t.Context(), g, state{})
	require.NoError(t, err)
	require.Equal(t, state{"", 7}, out.State)

	for name, given := range map[string]any{
		"channel": make(chan int), "function": func() {}, "text": "ada", "list": []int{1}, "another type": map[string]any{"limit": "many"},
	} {
		_, err := pregel.Invoke[state](t.Context(), g, state{}, pregel.WithRunContext(given))
		require.Error(t, err, name)
		require.Contains(t, err.Error(), "ontext", name)
	}
}

// A node's own options win over those of all nodes.
func TestNodeDefaults(t *testing.T) {
	t.Parallel()
	type state struct{ Deadlines []time.Duration }
	left := func(ctx context.Context, s state) (any, error) {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		return pregel.Values{"Deadlines": append(s.Deadlines, time.Until(deadline))}, nil
	}
	g := pregel.NewStateGraph[state]().SetNodeDefaults(pregel.WithTimeout(time.Hour)).
		AddNode("one", left).AddNode("two", left, pregel.WithTimeout(time.Minute)).
		SetEntryPoint("one").AddEdge("one", "two").SetFinishPoint("two").MustCompile()
	out, err := pregel.Invoke[state](t.Context(), g, state{})
	require.NoError(t, err)
	require.Len(t, out.State.Deadlines, 2)
	require.Greater(t, out.State.Deadlines[0], time.Minute)
	require.LessOrEqual(t, out.State.Deadlines[1], time.Minute)
}

// Labels of a path lead where the routes say; one without a route is an error that names it.
func TestConditionalEdgesMap(t *testing.T) {
	t.Parallel()
	type state struct {
		Label any      `json:"label"`
		Seen  []string `json:"seen"`
	}
	visit := func(name string) func(context.Context, state) (any, error) {
		return func(_ context.Context, s state) (any, error) {
			return pregel.Values{"seen": append(s.Seen, name)}, nil
		}
	}
	g := pregel.NewStateGraph[state]().AddNode("begin", visit("begin")).AddNode("left", visit("left")).AddNode("right", visit("right")).
		SetEntryPoint("begin").SetFinishPoint("left").SetFinishPoint("right").
		AddConditionalEdgesMap("begin", func(_ context.Context, s state) (any, error) { return s.Label, nil },
			map[string]string{"l": "left", "r": "right", "none": pregel.END}).MustCompile()
	for label, want := range map[string][]string{"l": {"begin", "left"}, "r": {"begin", "right"}, "none": {"begin"}} {
		out, err := pregel.Invoke[state](t.Context(), g, state{Label: label})
		require.NoError(t, err, label)
		require.Equal(t, want, out.State.Seen, label)
	}
	_, err := pregel.Invoke[state](t.Context(), g, state{Label: "elsewhere"})
	require.ErrorContains(t, err, "elsewhere")
}

// Untracked values live as long as the run: its later steps read them, and no checkpoint has them. One step may write an UntrackedAny several times, and the
// last counts; an Untracked it may not.
func TestUntracked(t *testing.T) {
	t.Parallel()
	type state struct {
		Hidden string `json:"hidden"`
		Shown  string `json:"shown"`
	}
	write := func(text string) func(context.Context, state) (any, error) {
		return func(context.Context, state) (any, error) { return pregel.Values{"hidden": text}, nil }
	}
	build := func(c pregel.Channel) *pregel.Graph {
		return pregel.NewStateGraph[state](pregel.WithChannel("hidden", c)).
			AddNode("a", write("of a")).AddNode("b", write("of b")).
			AddNode("last", func(_ context.Context, s state) (any, error) { return pregel.Values{"shown": s.Hidden}, nil }).
			SetEntryPoint("a").SetEntryPoint("b").AddEdge("a", "last").AddEdge("b", "last").SetFinishPoint("last").MustCompile()
	}
	saver := checkpointer.NewMemory()
	thread := id.NewThread()
	g := build(pregel.UntrackedAny())
	out, err := pregel.Invoke[state](t.Context(), g, state{}, pregel.WithThread(thread, saver))
	require.NoError(t, err)
	require.Equal(t, "of b", out.State.Shown)
	found, err := saver.List(t.Context(), checkpointer.List{Thread: thread, Limit: 100})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, tuple := range found {
		require.False(t, gjson.GetBytes(tuple.Data, "channel_values.hidden").Exists())
		for _, b := range tuple.Blobs {
			require.NotEqual(t, "hidden", b.Channel)
		}
		for _, w := range tuple.Writes {
			require.NotEqual(t, "hidden", w.Channel)
		}
	}
	_, err = pregel.Invoke[state](t.Context(), build(pregel.Untracked()), state{})
	require.ErrorContains(t, err, "hidden")
}
