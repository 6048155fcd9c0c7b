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

// made returns the configuration that a graph which is made by a function of it is made of and called with.
func made(cfg graph.Config) graph.Config {
	if cfg.Factory != nil {
		cfg.Config = cfg.Factory
	}
	return cfg
}

func (c chosen) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return c.of(inv.Config.Config).Stream(ctx, inv)
}

func (c chosen) Explain(ctx context.Context, cfg graph.Config, at checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	cfg = made(cfg)
	return c.of(cfg.Config).Explain(ctx, cfg, at, live)
}

func (c chosen) Update(ctx context.Context, cfg graph.Config, at checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	cfg = made(cfg)
	return c.of(cfg.Config).Update(ctx, cfg, at, steps)
}

func (c chosen) Describe(ctx context.Context, cfg graph.Config, what graph.DescribeWhat) (json.RawMessage, error) {
	cfg = made(cfg)
	return c.of(cfg.Config).Describe(ctx, cfg, what)
}
