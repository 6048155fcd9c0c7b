// Command gographs serves Go twins of the graphs in ../graphs, for bench/run --go. It takes the flags of `understudy serve` as name=value.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/scripted"
	"understudy/graph/pregel"
	"understudy/internal/app"
	"understudy/internal/config"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	flags := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not name=value", arg)
		}
		flags[name] = value
	}
	settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv, err := app.New(ctx, app.Config{Settings: settings, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		return err
	}
	if err := register(srv); err != nil {
		return errors.Join(err, srv.Close())
	}
	fmt.Printf("understudy listening on http://%s\n", srv.Addr())
	return srv.Run(ctx)
}

func register(srv *app.Server) error {
	graphs := map[string]func() (graph.Graph, error){
		"agent":      func() (graph.Graph, error) { return talking("agent", 0) },
		"paced10":    func() (graph.Graph, error) { return talking("paced10", 10*time.Millisecond) },
		"paced20":    func() (graph.Graph, error) { return talking("paced20", 20*time.Millisecond) },
		"paced100":   func() (graph.Graph, error) { return talking("paced100", 100*time.Millisecond) },
		"echo":       echo,
		"echo_async": echo,
	}
	for name, build := range graphs {
		g, err := build()
		if err != nil {
			return err
		}
		if err := srv.Register(name, "", g); err != nil {
			return err
		}
	}
	return nil
}

type number struct {
	N int `graph:"n" json:"n,omitempty"`
}

func echo() (graph.Graph, error) {
	g := pregel.NewStateGraph[number]()
	g.AddNode("echo", func(_ context.Context, s number) (any, error) { return pregel.Values{"n": s.N + 1}, nil })
	g.AddEdge(pregel.START, "echo").AddEdge("echo", pregel.END)
	return g.Compile()
}

type query struct {
	Q string `json:"q"`
}

// talking is an agent whose model says as many words as it is told.
func talking(name string, delay time.Duration) (graph.Graph, error) {
	model, err := scripted.New(scripted.Script{Model: "fake", Delay: scripted.Duration(delay), Answers: []scripted.Answer{
		{When: `say (\d+)`, Words: "$1"},
		{Words: "3"},
	}})
	if err != nil {
		return nil, err
	}
	search := agent.MustTool("search", "Search.", func(_ context.Context, in query) (any, error) { return "Found 10 results for " + in.Q, nil })
	return agent.New(agent.Options{Name: name, Model: agent.Model{LLM: model}, Tools: []agent.Tool{search}})
}
