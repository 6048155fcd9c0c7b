package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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

func graphNames(ctx context.Context, api *client) ([]string, error) {
	var rows []struct {
		Graph string `json:"graph_id"`
	}
	if err := api.post(ctx, "/assistants/search", map[string]any{"limit": 1000}, &rows); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range rows {
		if !slices.Contains(names, r.Graph) {
			names = append(names, r.Graph)
		}
	}
	slices.Sort(names)
	return names, nil
}

// assistantID returns the ID of an assistant, or of the default assistant of a graph; "" if the server lists none: handlers of auth may hide those that a caller may use.
func assistantID(ctx context.Context, api *client, name string) (string, error) {
	var rows []struct {
		ID    string `json:"assistant_id"`
		Graph string `json:"graph_id"`
	}
	if err := api.post(ctx, "/assistants/search", map[string]any{"limit": 1000}, &rows); err != nil {
		return "", err
	}
	var graphs []string
	for _, r := range rows {
		if r.ID == name || r.Graph == name {
			return r.ID, nil
		}
		if !slices.Contains(graphs, r.Graph) {
			graphs = append(graphs, r.Graph)
		}
	}
	if len(rows) == 0 {
		return "", nil
	}
	slices.Sort(graphs)
	return "", noGraph(name, graphs)
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
