package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/scripted"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// twins are the graphs that langgraph.json does not declare, by name. Each does what its namesake in ../graphs/graphs.py does.
func twins() (map[string]graph.Graph, error) {
	model, err := fakeModel(0)
	if err != nil {
		return nil, err
	}
	slowModel, err := fakeModel(5 * time.Millisecond)
	if err != nil {
		return nil, err
	}
	builders := map[string]func() (graph.Graph, error){
		"pipeline":   pipeline,
		"failing":    failing,
		"slow":       slow,
		"ticker":     ticker,
		"parent":     func() (graph.Graph, error) { return parent(model) },
		"chorus":     func() (graph.Graph, error) { return chorus(slowModel) },
		"nested":     nested,
		"branches":   branches,
		"narrow":     narrow,
		"echo":       echo,
		"tokens":     func() (graph.Graph, error) { return conversation("speak", slowModel) },
		"contextual": contextual,
		"factory":    factory,
		"kinds":      kinds,
		"memory":     memory,
	}
	graphs := make(map[string]graph.Graph, len(builders))
	for name, build := range builders {
		g, err := build()
		if err != nil {
			return nil, fmt.Errorf("graph %s: %w", name, err)
		}
		graphs[name] = g
	}
	return graphs, nil
}

// fakeModel says what ../graphs/fake.py says. langgraph.json has the same script for the agents.
func fakeModel(delay time.Duration) (agent.Model, error) {
	m, err := scripted.New(scripted.Script{Model: "fake", Delay: scripted.Duration(delay), Answers: []scripted.Answer{
		{From: "tool", When: `(?s)^(.*)$`, Content: "tool said: $1"},
		{When: `^say (\d+)`, Words: "$1"},
		{Words: "3"},
	}})
	return agent.Model{LLM: m}, err
}

// query is what search is called with.
type query struct {
	Q string `json:"q"`
}

// search is the tool of the agents.
var search = agent.MustTool("search", "Look something up.", func(_ context.Context, in query) (any, error) {
	return "Found 10 results for " + in.Q, nil
})

// --- pipeline: custom stream, Send fan-out, reducer, interrupt -------------------------

type work struct {
	Topic  *string         `graph:"topic" json:"topic,omitempty"`
	Items  []string        `graph:"items,reducer=append" json:"items,omitempty"`
	Answer json.RawMessage `graph:"answer" json:"answer,omitempty"`
}

// topic is x by default.
func (w work) topic() string {
	if w.Topic == nil {
		return "x"
	}
	return *w.Topic
}

func pipeline() (graph.Graph, error) {
	g := pregel.NewStateGraph[work]()
	g.AddNode("plan", func(ctx context.Context, s work) (any, error) {
		return pregel.Values{"items": []string{s.topic()}}, pregel.Emit(ctx, map[string]string{"progress": "planning"})
	})
	g.AddNode("work", func(ctx context.Context, s work) (any, error) {
		// The last branch finishes first, so completion order differs from task order.
		topic := s.topic()
		n, err := strconv.Atoi(topic[len(topic)-1:])
		if err != nil {
			return nil, err
		}
		return pregel.Values{"items": []string{topic}}, sleep(ctx, time.Duration(2-n)*30*time.Millisecond)
	})
	g.AddNode("ask", func(ctx context.Context, s work) (any, error) {
		answer, err := pregel.Interrupt[json.RawMessage](ctx, struct {
			Question string   `json:"question"`
			Items    []string `json:"items"`
		}{"ok?", s.Items})
		return pregel.Values{"answer": answer}, err
	})
	g.AddEdge(pregel.START, "plan")
	g.AddConditionalEdges("plan", func(_ context.Context, s work) (any, error) {
		var sends []pregel.Send
		for i := range 3 {
			sends = append(sends, pregel.Send{Node: "work", Arg: pregel.Values{"topic": fmt.Sprintf("%s-%d", s.topic(), i)}})
		}
		return sends, nil
	}, "work")
	g.AddEdge("work", "ask")
	g.AddEdge("ask", pregel.END)
	return g.Compile()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// glimpse is how long a run takes at least, so that a client who has made one still sees its thread busy.
const glimpse = 50 * time.Millisecond

// --- failing: one good step, then an exception of the requested kind -------------------

type fail struct {
	Kind  string   `graph:"kind" json:"kind,omitempty"`
	Items []string `graph:"items,reducer=append" json:"items,omitempty"`
}

func failing() (graph.Graph, error) {
	g := pregel.NewStateGraph[fail]()
	g.AddNode("ok", func(ctx context.Context, _ fail) (any, error) {
		return fail{Items: []string{"ok"}}, sleep(ctx, glimpse)
	})
	g.AddNode("boom", func(_ context.Context, s fail) (any, error) {
		switch s.Kind {
		case "none":
			return fail{Items: []string{"survived"}}, nil
		case "key":
			return nil, pregel.Errorf("KeyError", "boom: node failed")
		case "private":
			return nil, pregel.Errorf("Private", "boom: node failed")
		default:
			return nil, pregel.Errorf("ValueError", "boom: node failed")
		}
	})
	g.AddEdge(pregel.START, "ok").AddEdge("ok", "boom").AddEdge("boom", pregel.END)
	return g.Compile()
}

// --- slow: a short step, then one that takes three seconds ------------------------------

func slow() (graph.Graph, error) {
	g := pregel.NewStateGraph[work]()
	g.AddNode("first", func(context.Context, work) (any, error) { return work{Items: []string{"first"}}, nil })
	g.AddNode("slow", func(ctx context.Context, _ work) (any, error) {
		return work{Items: []string{"slow"}}, sleep(ctx, 3*time.Second)
	})
	g.AddEdge(pregel.START, "first").AddEdge("first", "slow").AddEdge("slow", pregel.END)
	return g.Compile()
}

// --- ticker: `steps` supersteps of `delay` seconds --------------------------------------

type ticks struct {
	Steps *int     `graph:"steps" json:"steps,omitempty"`
	Delay *float64 `graph:"delay" json:"delay,omitempty"`
	Tag   *string  `graph:"tag" json:"tag,omitempty"`
	Items []string `graph:"items,reducer=append" json:"items,omitempty"`
	Done  int      `graph:"done" json:"done,omitempty"`
}

func or[T any](v *T, fallback T) T {
	if v == nil {
		return fallback
	}
	return *v
}

func ticker() (graph.Graph, error) {
	g := pregel.NewStateGraph[ticks]()
	g.AddNode("tick", func(ctx context.Context, s ticks) (any, error) {
		err := sleep(ctx, time.Duration(or(s.Delay, 0.5)*float64(time.Second)))
		return pregel.Values{"done": s.Done + 1, "items": []string{or(s.Tag, "t") + strconv.Itoa(s.Done)}}, err
	})
	g.AddNode("finish", func(context.Context, ticks) (any, error) { return pregel.Values{"done": 0}, nil })
	g.AddEdge(pregel.START, "tick")
	g.AddConditionalEdges("tick", func(_ context.Context, s ticks) (any, error) {
		if s.Done < or(s.Steps, 6) {
			return "tick", nil
		}
		return "finish", nil
	}, "tick", "finish")
	g.AddEdge("finish", pregel.END)
	return g.Compile()
}

// --- parent: a subgraph that calls a model; tokens: the same without one around it -------

type talk struct {
	Messages []message.Message `graph:"messages,reducer=add_messages" json:"messages"`
}

// conversation is a graph of one node that says what the model says.
func conversation(node string, model agent.Model) (*pregel.Graph, error) {
	g := pregel.NewStateGraph[talk]()
	g.AddNode(node, func(ctx context.Context, s talk) (any, error) {
		answer, err := model.Ask(ctx, s.Messages, nil)
		return talk{Messages: []message.Message{answer}}, err
	})
	g.AddEdge(pregel.START, node).AddEdge(node, pregel.END)
	return g.Compile()
}

func parent(model agent.Model) (graph.Graph, error) {
	child, err := conversation("inner", model)
	if err != nil {
		return nil, err
	}
	g := pregel.NewStateGraph[talk]()
	g.AddSubgraph("child", child)
	g.AddEdge(pregel.START, "child").AddEdge("child", pregel.END)
	return g.Compile()
}

// --- chorus: two models that speak at the same time ------------------------------------

func chorus(model agent.Model) (graph.Graph, error) {
	g := pregel.NewStateGraph[talk]()
	for name, words := range map[string]string{"first": "say 12", "second": "say 8"} {
		g.AddNode(name, func(ctx context.Context, _ talk) (any, error) {
			answer, err := model.Ask(ctx, []message.Message{message.Human(words)}, nil)
			return talk{Messages: []message.Message{answer}}, err
		})
		g.AddEdge(pregel.START, name).AddEdge(name, pregel.END)
	}
	return g.Compile()
}

// --- nested: an interrupt two levels down ----------------------------------------------

type nest struct {
	Value *string  `graph:"value" json:"value,omitempty"`
	Trail []string `graph:"trail,reducer=append" json:"trail,omitempty"`
}

// leaves is a node that leaves its name on the trail.
func leaves(name string) func(context.Context, nest) (any, error) {
	return func(context.Context, nest) (any, error) { return nest{Trail: []string{name}}, nil }
}

func nested() (graph.Graph, error) {
	leaf := pregel.NewStateGraph[nest]()
	leaf.AddNode("leaf_prepare", leaves("prepared"))
	leaf.AddNode("leaf_ask", func(ctx context.Context, _ nest) (any, error) {
		answer, err := pregel.Interrupt[json.RawMessage](ctx, "leaf?")
		return pregel.Values{"value": answer, "trail": []string{"leaf"}}, err
	})
	leaf.AddEdge(pregel.START, "leaf_prepare").AddEdge("leaf_prepare", "leaf_ask").AddEdge("leaf_ask", pregel.END)
	inside, err := leaf.Compile()
	if err != nil {
		return nil, err
	}
	g := pregel.NewStateGraph[nest]()
	g.AddNode("before", leaves("before"))
	g.AddSubgraph("leaf", inside)
	g.AddNode("after", leaves("after"))
	g.AddEdge(pregel.START, "before").AddEdge("before", "leaf").AddEdge("leaf", "after").AddEdge("after", pregel.END)
	return g.Compile()
}

// --- branches: parallel branches, each of which may ask; the last to end never does -----

type branching struct {
	Asking []string `graph:"asking" json:"asking,omitempty"`
	Trail  []string `graph:"trail,reducer=append" json:"trail,omitempty"`
}

func branches() (graph.Graph, error) {
	g := pregel.NewStateGraph[branching]()
	names := []string{"early", "late", "last"}
	for i, name := range names {
		g.AddNode(name, func(ctx context.Context, s branching) (any, error) {
			if err := sleep(ctx, time.Duration(i)*100*time.Millisecond); err != nil {
				return nil, err
			}
			answer := name
			if slices.Contains(s.Asking, name) {
				var err error
				if answer, err = pregel.Interrupt[string](ctx, name+"?"); err != nil {
					return nil, err
				}
			}
			return branching{Trail: []string{name + "=" + answer}}, nil
		})
		g.AddEdge(pregel.START, name)
	}
	g.AddNode("join", func(context.Context, branching) (any, error) { return branching{Trail: []string{"joined"}}, nil })
	g.AddJoin(names, "join").AddEdge("join", pregel.END)
	return g.Compile()
}

// --- narrow: takes a question and returns an answer, and so does its subgraph; what is between stays inside ----

type question struct {
	Question string `graph:"question" json:"question,omitempty"`
}

type answer struct {
	Answer string `graph:"answer" json:"answer,omitempty"`
}

type wide struct {
	Question string `graph:"question" json:"question,omitempty"`
	Answer   string `graph:"answer" json:"answer,omitempty"`
	Scratch  string `graph:"scratch" json:"scratch,omitempty"`
}

func narrow() (graph.Graph, error) {
	inner := pregel.NewStateGraph[wide](pregel.WithInput[question](), pregel.WithOutput[answer]())
	inner.AddNode("think", func(_ context.Context, s wide) (any, error) {
		return wide{Scratch: "inner", Answer: "thought about " + s.Question}, nil
	})
	inner.AddEdge(pregel.START, "think").AddEdge("think", pregel.END)
	thinking, err := inner.Compile()
	if err != nil {
		return nil, err
	}
	g := pregel.NewStateGraph[wide](pregel.WithInput[question](), pregel.WithOutput[answer]())
	g.AddNode("note", func(context.Context, wide) (any, error) { return wide{Scratch: "outer"}, nil })
	g.AddSubgraph("thinking", thinking)
	g.AddNode("check", func(ctx context.Context, s wide) (any, error) {
		switch s.Question {
		case "ask":
			got, err := pregel.Interrupt[string](ctx, pregel.Values{"scratch": s.Scratch})
			return wide{Answer: got}, err
		case "fail":
			return nil, pregel.Errorf("ValueError", "no answer")
		}
		return wide{Answer: s.Answer + "!"}, nil
	})
	g.AddEdge(pregel.START, "note").AddEdge("note", "thinking").AddEdge("thinking", "check").AddEdge("check", pregel.END)
	return g.Compile()
}

// --- echo: the least work a graph can do -----------------------------------------------

type number struct {
	N int `graph:"n" json:"n,omitempty"`
}

func echo() (graph.Graph, error) {
	g := pregel.NewStateGraph[number]()
	g.AddNode("echo", func(ctx context.Context, s number) (any, error) {
		return pregel.Values{"n": s.N + 1}, sleep(ctx, glimpse)
	})
	g.AddEdge(pregel.START, "echo").AddEdge("echo", pregel.END)
	return g.Compile()
}

// --- contextual: reports the context and configuration that reached the node -----------

type user struct {
	User  string `json:"user" jsonschema:"default=nobody"`
	Level int    `json:"level" jsonschema:"default=0"`
}

type seen struct {
	Ask  string         `graph:"ask" json:"ask,omitempty"`
	Seen map[string]any `graph:"seen" json:"seen,omitempty"`
}

func contextual() (graph.Graph, error) {
	g := pregel.NewStateGraph[seen](pregel.WithContext[user]())
	g.AddNode("report", func(ctx context.Context, _ seen) (any, error) {
		info, _ := pregel.Info(ctx)
		var config struct {
			Configurable   map[string]json.RawMessage `json:"configurable"`
			Tags           []string                   `json:"tags"`
			RecursionLimit json.RawMessage            `json:"recursion_limit"`
		}
		if err := json.Unmarshal(info.Config, &config); err != nil {
			return nil, err
		}
		var metadata map[string]json.RawMessage
		if err := json.Unmarshal(info.Metadata, &metadata); err != nil {
			return nil, err
		}
		var who any
		if info.Context != nil {
			given := user{User: "nobody"}
			if err := json.Unmarshal(info.Context, &given); err != nil {
				return nil, err
			}
			who = given
		}
		hidden := []string{"__", "checkpoint", "langgraph_auth", "langgraph_request"}
		for key := range config.Configurable {
			if slices.ContainsFunc(hidden, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
				delete(config.Configurable, key)
			}
		}
		for key, value := range metadata {
			if value[0] == '{' || value[0] == '[' || value[0] == 'n' {
				delete(metadata, key)
			}
		}
		return seen{Seen: map[string]any{
			"context": who, "configurable": config.Configurable, "metadata": metadata, "tags": append([]string{}, config.Tags...),
			"recursion_limit": config.RecursionLimit,
		}}, nil
	})
	g.AddEdge(pregel.START, "report").AddEdge("report", pregel.END)
	return g.Compile()
}

// --- factory: one graph shape per configuration ----------------------------------------

type shaped struct {
	Shape string   `graph:"shape" json:"shape,omitempty"`
	Path  []string `graph:"path,reducer=append" json:"path,omitempty"`
}

func factory() (graph.Graph, error) {
	shapes := map[string]*pregel.Graph{}
	for _, shape := range []string{"plain", "long"} {
		g := pregel.NewStateGraph[shaped]()
		g.AddNode("first", func(context.Context, shaped) (any, error) { return shaped{Shape: shape, Path: []string{"first"}}, nil })
		g.AddEdge(pregel.START, "first")
		last := "first"
		if shape == "long" {
			last = "second"
			g.AddNode(last, func(context.Context, shaped) (any, error) { return shaped{Path: []string{last}}, nil })
			g.AddEdge("first", last)
		}
		g.AddEdge(last, pregel.END)
		var err error
		if shapes[shape], err = g.Compile(); err != nil {
			return nil, err
		}
	}
	return chosen{shapes}, nil
}

// --- kinds: values of awkward types, those that JSON has ---------------------------------

type only struct {
	Only  string          `graph:"only" json:"only,omitempty"`
	Value json.RawMessage `graph:"value" json:"value,omitempty"`
}

func kinds() (graph.Graph, error) {
	values := map[string]any{
		"tuple":       []any{1, "two"},
		"nan":         math.NaN(),
		"inf":         math.Inf(1),
		"float_whole": 1.0,
		"big_int":     int64(1)<<53 + 1,
		"int_keys":    map[int]string{1: "one", 2: "two"},
		"none":        nil,
		"unicode":     "héllo ☃ \U0001f600",
		"nul":         "a\x00b",
		"bytes":       []byte("\x00\xffhi"),
		"message":     message.Message{Type: message.TypeHuman, ID: "m1", Content: message.Text("hi")},
		"send":        pregel.Send{Node: "somewhere", Arg: pregel.Values{"k": 1}},
	}
	g := pregel.NewStateGraph[only]()
	g.AddNode("produce", func(_ context.Context, s only) (any, error) {
		value, ok := values[s.Only]
		if !ok {
			return nil, pregel.Errorf("KeyError", "%s", s.Only)
		}
		return pregel.Values{"value": value}, nil
	})
	g.AddEdge(pregel.START, "produce").AddEdge("produce", pregel.END)
	return g.Compile()
}

// --- memory: reads and writes the shared store -----------------------------------------

type fact struct {
	Who   string   `graph:"who" json:"who,omitempty"`
	Fact  string   `graph:"fact" json:"fact,omitempty"`
	Known []string `graph:"known" json:"known,omitempty"`
}

func memory() (graph.Graph, error) {
	g := pregel.NewStateGraph[fact]()
	g.AddNode("remember", func(ctx context.Context, s fact) (any, error) {
		store, space := pregel.StoreOf(ctx), []string{"conformance-memory", s.Who}
		if s.Fact != "" {
			value, err := json.Marshal(map[string]string{"fact": s.Fact})
			if err != nil {
				return nil, err
			}
			if _, err := store.Batch(ctx, []graph.StoreOp{{Put: &graph.StorePut{Namespace: space, Key: s.Fact, Value: value}}}); err != nil {
				return nil, err
			}
		}
		found, err := store.Batch(ctx, []graph.StoreOp{{Search: &graph.StoreSearch{Prefix: space, Limit: 100}}})
		if err != nil {
			return nil, err
		}
		known := []string{}
		for _, item := range found[0].Items {
			var value struct {
				Fact string `json:"fact"`
			}
			if err := json.Unmarshal(item.Value, &value); err != nil {
				return nil, err
			}
			known = append(known, value.Fact)
		}
		slices.Sort(known)
		return pregel.Values{"known": known}, nil
	})
	g.AddEdge(pregel.START, "remember").AddEdge("remember", pregel.END)
	return g.Compile()
}
