package remote

import (
	"encoding/json"
	"slices"
	"strings"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonobj"
)

// streamModes returns the modes that the client requested and those that the mirror needs.
func (r *run) streamModes() []string {
	// Servers refuse tools in requests of v1.
	modes := slices.DeleteFunc(slices.Clone(r.inv.Modes), func(mode string) bool { return mode == "tools" || mode == graph.ModeIDs || mode == graph.ModeChannels })
	if !slices.Contains(modes, "checkpoints") && r.live {
		modes = append(modes, "checkpoints")
	}
	return modes
}

// wants reports whether the client requested a mode.
func (r *run) wants(mode string) bool { return slices.Contains(r.inv.Modes, mode) }

// serverKey reports whether a key of configurable is set by servers themselves.
func serverKey(key string) bool {
	switch key {
	case "run_id", "thread_id", "graph_id", "assistant_id", "cron_id", "langgraph_request_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map":
		return true
	}
	return strings.HasPrefix(key, "__") || strings.HasPrefix(key, "langgraph_auth_")
}

// body returns the request that creates the run.
func (r *run) body(explicit id.Checkpoint) (json.RawMessage, error) {
	inv := r.inv
	b := jsonobj.Of(nil)
	set := func(key string, v json.RawMessage) {
		if len(v) > 0 {
			b.Set(key, v)
		}
	}
	b.SetText("assistant_id", r.g.graph)
	set("input", inv.Input)
	set("command", inv.Command)
	modes, err := json.Marshal(r.streamModes())
	if err != nil {
		return nil, err
	}
	b.Set("stream_mode", modes)
	if inv.Subgraphs {
		b.Set("stream_subgraphs", json.RawMessage("true"))
	}
	b.Set("stream_resumable", json.RawMessage("true"))
	b.SetText("on_disconnect", "continue")
	// This server has the queue: a run that is still running there is a leftover.
	b.SetText("multitask_strategy", "interrupt")
	if inv.Durability != "" {
		b.SetText("durability", inv.Durability)
	}
	if inv.Temporary {
		b.SetText("durability", "exit")
	}
	set("interrupt_before", inv.InterruptBefore)
	set("interrupt_after", inv.InterruptAfter)
	if explicit != "" || inv.At.NS != "" {
		at := jsonobj.Of(nil)
		at.SetText("thread_id", string(inv.Thread))
		at.SetText("checkpoint_ns", inv.At.NS)
		if explicit != "" {
			at.SetText("checkpoint_id", string(explicit))
		}
		if len(inv.CheckpointMap) > 0 {
			at.Set("checkpoint_map", inv.CheckpointMap)
		}
		b.Set("checkpoint", at.JSON())
	}
	r.config(b)
	return b.JSON(), nil
}

// config adds the run's configuration. A server accepts context or configurable, and derives each from the other. Context is sent if the
// client sent one, because only then the server applies the graph's schema.
func (r *run) config(b *jsonobj.Object) {
	given := jsonobj.Of(r.inv.Config.Config)
	config, configurable := jsonobj.Of(nil), jsonobj.Of(nil)
	asContext := false
	jsonobj.Of(given.Get("configurable")).Each(func(k string, v json.RawMessage) {
		asContext = asContext || k == "__context_keys__"
		if !serverKey(k) && (k != "user_id" || string(v) != `""`) { // a server without a user writes ""
			configurable.Set(k, v)
		}
	})
	given.Each(func(k string, v json.RawMessage) {
		if k != "configurable" && k != "metadata" {
			config.Set(k, v)
		}
	})
	metadata := jsonobj.Of(given.Get("metadata"))
	for _, key := range ownMetadata {
		metadata.Delete(key)
	}
	if metadata.Len() > 0 {
		b.Set("metadata", metadata.JSON())
	}
	if given := jsonobj.Of(r.inv.Context); asContext && given.Len() > 0 {
		b.Set("context", given.JSON())
	} else if configurable.Len() > 0 {
		config.Set("configurable", configurable.JSON())
	}
	if config.Len() > 0 {
		b.Set("config", config.JSON())
	}
}
