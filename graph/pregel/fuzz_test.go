package pregel_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
)

// noPanic fails when an error is that of a panic.
func noPanic(t *testing.T, err error) {
	t.Helper()
	var f *graph.Failure
	if errors.As(err, &f) && strings.Contains(f.Detail, "goroutine ") {
		t.Fatalf("panic: %s", f.Detail)
	}
}

func fuzzed(tb testing.TB) *pregel.Graph {
	g, err := pregel.NewStateGraph[conversation](pregel.WithChannel("items", pregel.Append()), pregel.WithChannel("n", pregel.Add()),
		pregel.WithChannel("topic", pregel.Topic(true)), pregel.WithChannel("last", pregel.LastValue())).
		AddNode("a", func(ctx context.Context, s conversation) (any, error) {
			_, err := pregel.Interrupt[any](ctx, len(s.Messages))
			return nil, err
		}).
		AddNode("d", func(context.Context, conversation) (any, error) { return nil, nil }, pregel.Deferred()).
		AddEdge(pregel.START, "a").AddJoin([]string{"a"}, "d").Compile()
	require.NoError(tb, err)
	return g
}

// Whatever a client sends ends in a state or in an error.
func FuzzRun(f *testing.F) {
	g := fuzzed(f)
	f.Add([]byte(`{"messages":[{"role":"user","content":"x"}],"items":[1],"n":2}`), []byte(`{"resume":1,"goto":["a",{"node":"a","input":null}],"update":[["n",1]]}`))
	f.Add([]byte(`{"items":{"__overwrite__":[1]}}`), []byte(`{"update":{"messages":{"type":"remove","id":"__remove_all__","content":""}}}`))
	f.Add([]byte(`[]`), []byte(`{"goto":5}`))
	f.Fuzz(func(t *testing.T, input, command []byte) {
		if !json.Valid(input) || !json.Valid(command) {
			return
		}
		m := &memory{}
		for _, inv := range []graph.Invocation{invocation(m, string(input), "values", "updates", "tasks", "checkpoints", "messages", "debug"), invocation(m, "", "values")} {
			if inv.Input == nil {
				inv.Command = command
			}
			for e, err := range g.Stream(context.Background(), inv) {
				noPanic(t, err)
				if err == nil && !json.Valid(e.Data) {
					t.Fatalf("%s is no JSON: %s", e.Name, e.Data)
				}
			}
		}
		_, _ = g.Update(context.Background(), graph.Config{Saver: m}, checkpointer.Key{Thread: testThread}, [][]graph.StateUpdate{{{Values: input, AsNode: "a"}}, {{Command: command, AsNode: "a"}}})
	})
}

// What a database holds may come from anywhere.
func FuzzStored(f *testing.F) {
	g := fuzzed(f)
	m := &memory{}
	for _, err := range g.Stream(context.Background(), invocation(m, `{"messages":[{"role":"user","content":"x"}],"items":[1]}`, "values")) {
		require.NoError(f, err)
	}
	for _, key := range m.order {
		t, err := m.Load(context.Background(), key)
		require.NoError(f, err)
		for _, b := range t.Blobs {
			f.Add([]byte(t.Data), []byte(t.Metadata), b.Channel, "msgpack", b.Bytes())
		}
	}
	f.Add([]byte(`{"channel_versions":{"__pregel_tasks":1}}`), []byte(`{"step":1}`), "__pregel_tasks", "json", []byte(`[1]`))
	f.Fuzz(func(t *testing.T, data, metadata []byte, channel, typ string, blob []byte) {
		if !json.Valid(data) || !json.Valid(metadata) {
			return
		}
		m := &memory{}
		at := checkpointer.Key{Thread: testThread, ID: id.Checkpoint("1f1e5adf-3d85-6b44-8000-d3a074260c2a")}
		require.NoError(t, m.PutCheckpoint(&checkpointer.Put{
			Checkpoint: checkpointer.Checkpoint{Key: at, Data: data, Metadata: metadata},
			Blobs:      []checkpointer.Blob{{Channel: channel, Version: "1", Type: typ, Data: blob}},
		}))
		require.NoError(t, m.PutWrites(at, []checkpointer.Write{{TaskID: "x", Channel: channel, Type: typ, Data: blob}, {TaskID: "00000000-0000-0000-0000-000000000000", Index: 1, Channel: channel, Type: typ, Data: blob}}))
		for _, input := range []string{"", `{"n":1}`} {
			inv := invocation(m, input, "values", "updates", "checkpoints", "debug")
			inv.Config.Config = json.RawMessage(`{"recursion_limit":3}`)
			for e, err := range g.Stream(context.Background(), inv) {
				noPanic(t, err)
				if err == nil && !json.Valid(e.Data) {
					t.Fatalf("%s is no JSON: %s", e.Name, e.Data)
				}
			}
		}
		_, _ = g.Explain(context.Background(), graph.Config{Saver: m}, at, true)
	})
}
