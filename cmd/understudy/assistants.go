package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"understudy/id"
	"understudy/internal/shell"
)

// onlyAssistant returns the graph of a server that has one.
func onlyAssistant(ctx context.Context, api *client) (string, error) {
	graphs, err := graphNames(ctx, api)
	switch {
	case err != nil:
		return "", err
	case len(graphs) == 0:
		return "", errors.New("the server lists no graph: see its log, or, where handlers of auth hide assistants, name the graph: " + api.command("chat GRAPH"))
	case len(graphs) > 1:
		return "", usageError{fmt.Errorf("the server has several graphs (%s); name one: %s", strings.Join(graphs, ", "), api.command("chat "+shell.Quote(graphs[0])))}
	}
	return graphs[0], nil
}

// listed is an assistant in a server's list.
type listed struct {
	ID    string `json:"assistant_id"`
	Graph string `json:"graph_id"`
}

func graphNames(ctx context.Context, api *client) ([]string, error) {
	var rows []listed
	if err := api.post(ctx, "/assistants/search", map[string]any{"limit": 1000}, &rows); err != nil {
		return nil, err
	}
	return graphsOf(rows), nil
}

// graphsOf returns the graphs that a server has, by its assistants: each that it serves has a default assistant. Others may be left from graphs that it served
// once, or of imports. Where handlers of auth hide the default ones, all are taken.
func graphsOf(rows []listed) []string {
	var all, served []string
	for _, r := range rows {
		all = append(all, r.Graph)
		if r.ID == string(id.DefaultAssistant(r.Graph)) {
			served = append(served, r.Graph)
		}
	}
	if served == nil {
		served = all
	}
	slices.Sort(served)
	return slices.Compact(served)
}

// assistantID returns the ID of an assistant, or of the default assistant of a graph; "" if the server lists none: handlers of auth may hide those that a caller may use.
func assistantID(ctx context.Context, api *client, name string) (string, error) {
	var rows []listed
	if err := api.post(ctx, "/assistants/search", map[string]any{"limit": 1000}, &rows); err != nil {
		return "", err
	}
	for _, r := range rows {
		if r.ID == name || r.Graph == name {
			return r.ID, nil
		}
	}
	if len(rows) == 0 {
		return "", nil
	}
	return "", noGraph(name, graphsOf(rows))
}

// checkGraph refuses the name of a graph that a server does not have. It passes what it cannot find out.
func checkGraph(ctx context.Context, api *client, name string) error {
	var rows []json.RawMessage
	if err := api.post(ctx, "/assistants/search", map[string]any{"graph_id": name, "limit": 1}, &rows); err == nil && len(rows) > 0 {
		return nil
	}
	graphs, err := graphNames(ctx, api)
	if err != nil || len(graphs) == 0 || slices.Contains(graphs, name) {
		return nil //nolint:nilerr // assistants may be closed to the caller
	}
	return noGraph(name, graphs)
}

func noGraph(name string, graphs []string) error {
	if len(graphs) == 0 {
		return fmt.Errorf("the server has no graph %q that you may use, and lists no other: see its log, and what handlers of auth let you see", name)
	}
	return usageError{fmt.Errorf("the server has no graph %q; it has %s", name, strings.Join(graphs, ", "))}
}
