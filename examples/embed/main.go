// Command embed is a program that has its own server inside: a graph and an agent in Go, served through the LangGraph Server API.
// docs/embedding.md walks through it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"understudy"
	"understudy/graph/agent"
	"understudy/graph/agent/provider"
	"understudy/graph/pregel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	addr := flag.String("addr", "127.0.0.1:8123", "host and port to listen on; port 0 takes a free one")
	data := flag.String("data", ".understudy", "folder of the database")
	flag.Parse()

	srv, err := understudy.New(understudy.Config{
		Addr:    *addr,
		Storage: understudy.Storage{Dir: *data},
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer srv.Close()

	shout, err := shout()
	if err != nil {
		return err
	}
	chat, err := chat()
	if err != nil {
		return err
	}
	defer chat.Close()
	if err := srv.Register("shout", "Says it louder, when a person agrees.", shout); err != nil {
		return err
	}
	if err := srv.Register("chat", "Knows the length of words.", chat); err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", srv.Addr())
	return srv.Run(ctx)
}

// Text is the state of shout. Field tags name its keys.
type Text struct {
	Text  string   `json:"text"`
	Trail []string `json:"trail" graph:"trail,reducer=append"`
}

// shout is a graph of two nodes. The second asks a person before it continues.
func shout() (*pregel.Graph, error) {
	g := pregel.NewStateGraph[Text]()
	g.AddNode("louder", func(_ context.Context, s Text) (any, error) {
		return Text{Text: strings.ToUpper(s.Text), Trail: []string{"louder"}}, nil
	})
	g.AddNode("confirm", func(ctx context.Context, s Text) (any, error) {
		ok, err := pregel.Interrupt[bool](ctx, map[string]string{"question": "Say " + s.Text + "?"})
		if err != nil || !ok {
			return nil, err
		}
		return Text{Text: s.Text + "!", Trail: []string{"confirm"}}, nil
	})
	g.AddSequence(pregel.START, "louder", "confirm", pregel.END)
	return g.Compile(pregel.WithName("shout"))
}

// chat is an agent with a tool in Go. Give it a real model: provider.Spec{Name: "openai:gpt-4o"}.
func chat() (*agent.Agent, error) {
	model, err := provider.Open(provider.Spec{Name: "scripted:", Script: []byte(`[
		{"from": "tool", "when": "(.*)", "content": "It has $1 letters."},
		{"when": "How long is (\\w+)", "tool_calls": [{"name": "length", "args": {"word": "$1"}}]},
		{"content": "Ask me how long a word is."}]`)})
	if err != nil {
		return nil, err
	}
	type word struct {
		Word string `json:"word" jsonschema:"the word"`
	}
	length := agent.MustTool("length", "Counts the letters of a word.", func(_ context.Context, args word) (any, error) {
		return len([]rune(args.Word)), nil
	})
	return agent.New(agent.Options{Name: "chat", Model: model, Tools: []agent.Tool{length}})
}
