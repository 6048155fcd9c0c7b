package sqlite_test

import (
	"context"
	"fmt"
	"os"

	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/id"
	"understudy/storage/sqlite"
)

// A program without a server keeps the threads of its graphs in a data folder: a question that one process asked is answered in another.
func ExampleStore_Saver() {
	type State struct {
		Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("ask", func(ctx context.Context, _ State) (any, error) {
		name, err := pregel.Interrupt[string](ctx, "Who are you?")
		if err != nil {
			return nil, err
		}
		return State{[]message.Message{message.AI("Hello " + name).WithID("a1")}}, nil
	})
	g.AddEdge(pregel.START, "ask")
	graph := g.MustCompile()

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	thread := id.NewThread()
	for _, input := range []any{State{[]message.Message{message.Human("Hi").WithID("h1")}}, &pregel.Command{Resume: "Ada"}} {
		store, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir})
		if err != nil {
			panic(err)
		}
		result, err := pregel.Invoke[State](context.Background(), graph, input, pregel.WithThread(thread, store.Saver()))
		if err != nil {
			panic(err)
		}
		for _, m := range result.State.Messages {
			fmt.Println(m.Type, m.Text())
		}
		for _, question := range result.Interrupts {
			fmt.Println(string(question.Value))
		}
		if err := store.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// human Hi
	// "Who are you?"
	// human Hi
	// ai Hello Ada
}
