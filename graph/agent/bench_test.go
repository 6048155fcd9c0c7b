package agent_test

import (
	"fmt"
	"testing"

	"understudy/graph/agent"
	"understudy/graph/agent/scripted"
)

// BenchmarkTokens streams an answer of so many words through an agent, in process.
func BenchmarkTokens(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, err := scripted.New(scripted.Script{Answers: []scripted.Answer{{Words: fmt.Sprint(n)}}})
			if err != nil {
				b.Fatal(err)
			}
			a, err := agent.New(agent.Options{Name: "agent", Model: agent.Model{LLM: m}, Tools: []agent.Tool{search}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			tokens := 0
			for b.Loop() {
				w := &world{agent: a, saves: &memory{}}
				for _, err := range a.Stream(b.Context(), w.invocation(says("go"), "messages-tuple")) {
					if err != nil {
						b.Fatal(err)
					}
					tokens++
				}
			}
			b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkTurn is a turn of an agent that calls a tool: two calls of the model, one of the tool.
func BenchmarkTurn(b *testing.B) {
	m, err := scripted.Parse([]byte(fake))
	if err != nil {
		b.Fatal(err)
	}
	a, err := agent.New(agent.Options{Name: "agent", Model: agent.Model{LLM: m}, Tools: []agent.Tool{search}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := &world{agent: a, saves: &memory{}}
		for _, err := range a.Stream(b.Context(), w.invocation(says(`call search {"q": "x"}`), "values")) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
