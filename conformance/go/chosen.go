package main

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
)

// chosen is a graph whose shape each configuration chooses, as a factory function does in Python.
type chosen struct{ shapes map[string]*pregel.Graph }

func (c chosen) of(config json.RawMessage) graph.Graph {
	if g := c.shapes[gjson.GetBytes(config, "configurable.shape").String()]; g != nil {
		return g
	}
	return c.shapes["plain"]
}

// factoryConfig is what a graph that is made by a function of its configuration is made of.
func factoryConfig(cfg graph.Config) json.RawMessage {
	if cfg.Factory != nil {
		return cfg.Factory
	}
	return cfg.Config
}

func (c chosen) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return c.of(inv.Config.Config).Stream(ctx, inv)
}

func (c chosen) Explain(ctx context.Context, cfg graph.Config, at checkpointer.Key, live bool) (graph.Explanation, error) {
	return c.of(factoryConfig(cfg)).Explain(ctx, cfg, at, live)
}

func (c chosen) Update(ctx context.Context, cfg graph.Config, at checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	return c.of(factoryConfig(cfg)).Update(ctx, cfg, at, steps)
}

func (c chosen) Describe(ctx context.Context, cfg graph.Config, what graph.DescribeWhat) (json.RawMessage, error) {
	return c.of(factoryConfig(cfg)).Describe(ctx, cfg, what)
}
