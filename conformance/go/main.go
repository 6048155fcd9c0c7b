// Command go serves Go twins of the graphs in ../graphs, for the conformance suite: `conformance/run --go`. What langgraph.json can declare
// is declared there; the rest is registered by this program. It needs no Python.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/internal/app"
	"understudy/internal/config"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	file := flag.String("config", "langgraph.json", "`FILE` that declares the agents")
	port := flag.String("port", "0", "port to listen on; 0 takes a free one")
	data := flag.String("data", ":memory:", "`DIR` of the database")
	database := flag.String("database-url", "", "`URL` of a Postgres database in place of that")
	redis := flag.String("redis-url", "", "`URL` of a Redis that several servers share")
	python := flag.String("python", "", "`PATH` of the interpreter for handlers, which a deployment has in addition to its graphs")
	deployment := flag.String("deployment", "", "serve twins of ../auth, ../app and ../index in place of those of ../graphs: those with these `NAMES`, separated by commas")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}

	flags := map[string]string{"port": *port, "data": *data}
	if *python != "" {
		flags["python"] = *python
	}
	if *database != "" {
		flags["database-url"] = *database
	}
	if *redis != "" {
		flags["redis-url"] = *redis
	}
	settings, _, err := config.Load(config.Source{Mode: config.Dev, File: *file, Flags: flags})
	if err != nil {
		return err
	}
	if *deployment != "" {
		settings.Graphs = nil // a file has to name one
	}
	srv, err := app.New(context.Background(), app.Config{
		Settings: settings, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Version: "twins", Tools: []agent.Tool{search},
	})
	if err != nil {
		return err
	}
	build := twins
	if *deployment != "" {
		build = deployed
	}
	graphs, err := build()
	if err != nil {
		return errors.Join(err, srv.Close())
	}
	if *deployment != "" {
		wanted := strings.Split(*deployment, ",")
		maps.DeleteFunc(graphs, func(name string, _ graph.Graph) bool { return !slices.Contains(wanted, name) })
	}
	for name, g := range graphs {
		if err := srv.Register(name, descriptions[name], g); err != nil {
			return errors.Join(err, srv.Close())
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("understudy listening on http://%s\n", srv.Addr())
	return srv.Run(ctx)
}

// descriptions are those of ../graphs/langgraph.json.
var descriptions = map[string]string{"factory": "Built per run by a factory."}
