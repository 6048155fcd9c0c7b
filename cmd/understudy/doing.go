package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/names"
)

// mostDoing is how many of the nodes, models and tools that a run executes at once are named.
const mostDoing = 3

// doing returns what a run executes now: models and tools with their nodes, or nodes; "" when the server does not say.
func (c *client) doing(ctx context.Context, w waited) string {
	ctx, cancel := context.WithTimeout(ctx, delayTime)
	defer cancel()
	var all json.RawMessage
	if err := c.get(ctx, "/understudy/runs/"+pathSegment(w.run)+"/spans?limit=1000", &all); err == nil {
		if list := executed(gjson.GetBytes(all, "spans").Array()); len(list) > 0 {
			return names.Some(list, mostDoing)
		}
	}
	var state struct {
		Next []string `json:"next"`
	}
	if err := c.get(ctx, "/threads/"+pathSegment(w.thread)+"/state", &state); err != nil || len(state.Next) == 0 {
		return "" // another server may not let its callers read states
	}
	if slices.Contains(state.Next, startNode) { // the run has saved its input, and is in what comes next
		if state.Next = c.firstNodes(ctx, w.assistant); len(state.Next) == 0 {
			return ""
		}
	}
	return "the node " + names.Some(state.Next, mostDoing)
}

// startNode is where graphs begin. It executes nothing.
const startNode = "__start__"

// firstNodes returns the nodes with which each run of an assistant begins; none when that depends on the run, or is not known.
func (c *client) firstNodes(ctx context.Context, assistant string) (nodes []string) {
	if assistant == "" {
		return nil
	}
	var drawn struct {
		Edges []struct {
			Source      string `json:"source"`
			Target      string `json:"target"`
			Conditional bool   `json:"conditional"`
		} `json:"edges"`
	}
	if err := c.get(ctx, "/assistants/"+pathSegment(assistant)+"/graph", &drawn); err != nil {
		return nil
	}
	for _, e := range drawn.Edges {
		if e.Source != startNode {
			continue
		}
		if e.Conditional {
			return nil
		}
		nodes = append(nodes, e.Target)
	}
	return nodes
}

// whyRetried returns why a run is in another attempt than its first.
func (c *client) whyRetried(ctx context.Context, w waited, attempt int64) string {
	ctx, cancel := context.WithTimeout(ctx, delayTime)
	defer cancel()
	var all json.RawMessage
	why := ""
	if err := c.get(ctx, "/threads/"+pathSegment(w.thread)+"/runs/"+pathSegment(w.run)+"/events?limit=1000&event_types=run.retry", &all); err == nil {
		for _, e := range gjson.GetBytes(all, "data").Array() {
			if e.Get("metadata.attempt").Int() == attempt-1 {
				why = ": " + e.Get("content").String()
			}
		}
	}
	return fmt.Sprintf("the run is tried again, attempt %d%s", attempt, why)
}

// executed names the innermost of the spans that have not ended.
func executed(spans []gjson.Result) (list []string) {
	outer := map[string]bool{}
	for _, s := range spans {
		if s.Get("status").Str == "running" {
			outer[s.Get("parent_id").Str] = true
		}
	}
	for _, s := range spans {
		if s.Get("status").Str != "running" || outer[s.Get("id").Str] {
			continue
		}
		name, node := s.Get("name").Str, s.Get("node").Str
		switch kind := s.Get("kind").Str; kind {
		case "model", "tool":
			if provider := s.Get("provider").Str; provider != "" {
				name = provider + ":" + name
			}
			name = "the " + kind + " " + name
			if node != "" {
				name += " (node " + node + ")"
			}
			list = append(list, name)
		case "node":
			list = append(list, strings.TrimSpace("the node "+name))
		}
	}
	return list
}
