package pregel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"understudy/checkpointer"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/id"
)

// A graph of two nodes. Each returns an update of the state; how keys take updates, their tags say.
func ExampleNewStateGraph() {
	type State struct {
		Topic string   `json:"topic"`
		Jokes []string `json:"jokes" graph:"jokes,reducer=append"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("refine", func(_ context.Context, s State) (any, error) {
		return State{Topic: s.Topic + " and cats"}, nil
	})
	g.AddNode("joke", func(_ context.Context, s State) (any, error) {
		return pregel.Values{"jokes": []string{"a joke about " + s.Topic}}, nil
	})
	g.AddSequence(pregel.START, "refine", "joke", pregel.END)
	graph, err := g.Compile(pregel.WithName("jokes"))
	if err != nil {
		panic(err)
	}
	out, err := pregel.Invoke[State](context.Background(), graph, State{Topic: "ice cream"})
	fmt.Println(out.State.Jokes, err)
	// Output: [a joke about ice cream and cats] <nil>
}

// A conditional edge sees what its node has just written, and names what comes next.
func ExampleStateGraph_AddConditionalEdges() {
	type State struct {
		N     int      `json:"n"`
		Trail []string `json:"trail" graph:"trail,reducer=append"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("count", func(_ context.Context, s State) (any, error) {
		return State{N: s.N + 1, Trail: []string{fmt.Sprint(s.N + 1)}}, nil
	})
	g.AddEdge(pregel.START, "count")
	g.AddConditionalEdges("count", func(_ context.Context, s State) (any, error) {
		if s.N < 3 {
			return "count", nil
		}
		return pregel.END, nil
	}, "count", pregel.END)
	out, err := pregel.Invoke[State](context.Background(), g.MustCompile(), State{})
	fmt.Println(out.State.N, out.State.Trail, err)
	// Output: 3 [1 2 3] <nil>
}

// Map and reduce: a Send runs a node with an input of its own. Updates are applied in the order of the Sends, whichever finishes
// first.
func ExampleSend() {
	type State struct {
		Subjects []string `json:"subjects"`
		Jokes    []string `json:"jokes" graph:"jokes,reducer=append"`
	}
	type Subject struct {
		Subject string `json:"subject"`
	}
	g := pregel.NewStateGraph[State]()
	pregel.AddNode(g, "joke", func(_ context.Context, in Subject) (any, error) {
		return pregel.Values{"jokes": []string{"about " + in.Subject}}, nil
	})
	g.AddConditionalEdges(pregel.START, func(_ context.Context, s State) (any, error) {
		var sends []pregel.Send
		for _, subject := range s.Subjects {
			sends = append(sends, pregel.Send{Node: "joke", Arg: Subject{subject}})
		}
		return sends, nil
	}, "joke")
	out, err := pregel.Invoke[State](context.Background(), g.MustCompile(), State{Subjects: []string{"cats", "dogs"}})
	fmt.Printf("%q %v\n", out.State.Jokes, err)
	// Output: ["about cats" "about dogs"] <nil>
}

// Interrupt stops the run until a client answers. The node then runs again from its start.
func ExampleInterrupt() {
	type State struct {
		Draft    string `json:"draft"`
		Approved bool   `json:"approved"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("approve", func(ctx context.Context, s State) (any, error) {
		ok, err := pregel.Interrupt[bool](ctx, map[string]any{"question": "send it?", "draft": s.Draft})
		if err != nil {
			return nil, err
		}
		return State{Approved: ok}, nil
	})
	g.AddEdge(pregel.START, "approve")
	graph := g.MustCompile()

	thread := pregel.WithThread(id.NewThread(), checkpointer.NewMemory())
	out, err := pregel.Invoke[State](context.Background(), graph, State{Draft: "Dear Ada"}, thread)
	fmt.Println(string(out.Interrupts[0].Value), out.Next, err)
	out, err = pregel.Invoke[State](context.Background(), graph, &pregel.Command{Resume: true}, thread)
	fmt.Println(out.State, out.Interrupts, err)
	// Output:
	// {"draft":"Dear Ada","question":"send it?"} [approve] <nil>
	// {Dear Ada true} [] <nil>
}

// A Command updates the state and chooses what comes next in one go.
func ExampleCommand() {
	type State struct {
		Question string `json:"question"`
		Answer   string `json:"answer"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("triage", func(_ context.Context, s State) (any, error) {
		if strings.Contains(s.Question, "?") {
			return &pregel.Command{Goto: "answer"}, nil
		}
		return &pregel.Command{Update: State{Answer: "that is no question"}, Goto: pregel.END}, nil
	}, pregel.Destinations("answer", pregel.END))
	g.AddNode("answer", func(context.Context, State) (any, error) { return State{Answer: "42"}, nil })
	g.AddEdge(pregel.START, "triage")
	graph := g.MustCompile()
	for _, q := range []string{"why?", "so."} {
		out, err := pregel.Invoke[State](context.Background(), graph, State{Question: q})
		fmt.Println(out.State.Answer, err)
	}
	// Output:
	// 42 <nil>
	// that is no question <nil>
}

// A conversation: messages get ids, one with a known id takes the place of the earlier one, Remove takes one away.
func ExampleMessages() {
	type State struct {
		Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("answer", func(_ context.Context, s State) (any, error) {
		last := s.Messages[len(s.Messages)-1]
		return State{Messages: []message.Message{
			message.AI("You said: " + last.Text()).WithID("a1"),
			message.Remove("old"),
		}}, nil
	})
	g.AddEdge(pregel.START, "answer")
	out, err := pregel.Invoke[State](context.Background(), g.MustCompile(), json.RawMessage(
		`{"messages":[{"role":"user","content":"forget this","id":"old"},{"role":"user","content":"hello","id":"h1"}]}`))
	if err != nil {
		panic(err)
	}
	for _, m := range out.State.Messages {
		fmt.Println(m.Type, m.ID, m.Text())
	}
	// Output:
	// human h1 hello
	// ai a1 You said: hello
}

// A graph as a node of another: they share the keys that both have.
func ExampleStateGraph_AddSubgraph() {
	type Inner struct {
		Text  string `json:"text"`
		Steps int    `json:"steps"`
	}
	inner := pregel.NewStateGraph[Inner]()
	inner.AddNode("shout", func(_ context.Context, s Inner) (any, error) {
		return Inner{Text: strings.ToUpper(s.Text), Steps: s.Steps + 1}, nil
	})
	inner.AddEdge(pregel.START, "shout")

	type Outer struct {
		Text string `json:"text"`
	}
	g := pregel.NewStateGraph[Outer]()
	g.AddSubgraph("loud", inner.MustCompile())
	g.AddEdge(pregel.START, "loud")
	out, err := pregel.Invoke[Outer](context.Background(), g.MustCompile(), Outer{Text: "hello"})
	fmt.Println(out.State.Text, err)
	// Output: HELLO <nil>
}

// The functional form: a function that calls tasks, whose results are kept. What they returned is not asked of them again after an interrupt.
func ExampleNewEntrypoint() {
	double := pregel.NewTask("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	graph, err := pregel.NewEntrypoint("sum", func(ctx context.Context, numbers []int) (int, error) {
		var futures []*pregel.Future[int]
		for _, n := range numbers {
			futures = append(futures, double.Start(ctx, n))
		}
		sum := 0
		for _, f := range futures {
			n, err := f.Get()
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	})
	if err != nil {
		panic(err)
	}
	out, err := pregel.Invoke[int](context.Background(), graph, []int{1, 2, 3})
	fmt.Println(out.State, err)
	// Output: 12 <nil>
}

// Keys that are known only at run time: channels are declared one by one.
func ExampleWithChannel() {
	g := pregel.NewStateGraph[pregel.Values](
		pregel.WithChannel("names", pregel.Append()),
		pregel.WithChannel("longest", pregel.Reducer(func(a, b string) string {
			if len(b) > len(a) {
				return b
			}
			return a
		})),
	)
	g.AddNode("look", func(_ context.Context, s pregel.Values) (any, error) {
		names, _, err := pregel.Get[[]string](s, "names")
		var writes []pregel.Write
		for _, name := range names {
			writes = append(writes, pregel.Write{Channel: "longest", Value: name})
		}
		return writes, err
	})
	g.AddEdge(pregel.START, "look")
	out, err := pregel.Invoke[json.RawMessage](context.Background(), g.MustCompile(), pregel.Values{"names": []string{"Ada", "Grace", "Alan"}})
	fmt.Println(string(out.State), err)
	// Output: {"names":["Ada","Grace","Alan"],"longest":"Grace"} <nil>
}
