package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/names"
)

// mostDoing is how many of the nodes, models and tools that a run executes at once are named.
const mostDoing = 3

// doing returns what a run executes now: models and tools with their nodes, or nodes; "" when the server does not say.
func (c *client) doing(ctx context.Context, thread, run string) string {
	ctx, cancel := context.WithTimeout(ctx, delayTime)
	defer cancel()
	var all json.RawMessage
	if err := c.get(ctx, "/understudy/runs/"+pathSegment(run)+"/spans?limit=1000", &all); err == nil {
		if list := executed(gjson.GetBytes(all, "spans").Array()); len(list) > 0 {
			return names.Some(list, mostDoing)
		}
	}
	var state struct {
		Next []string `json:"next"`
	}
	if err := c.get(ctx, "/threads/"+pathSegment(thread)+"/state", &state); err != nil || len(state.Next) == 0 {
		return "" // another server may not let its callers read states
	}
	return "the node " + names.Some(state.Next, mostDoing)
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
