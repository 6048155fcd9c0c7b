package pregel

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/id"
)

// invocation is what Invoke and Stream make of their options.
type invocation = graph.Invocation

// RunOption is an option of Invoke and Stream.
type RunOption func(*invocation) error

// WithThread runs the graph on a thread; saver stores its checkpoints. Run a thread once at a time: of runs that overlap, each continues from the state that it
// found, as in LangGraph, and the last one to save is what the thread continues from. A server queues the runs of a thread.
func WithThread(thread id.Thread, saver graph.Saver) RunOption {
	return set(func(inv *invocation) { inv.Thread, inv.Saver = thread, saver })
}

// WithConfig sets the configuration as JSON: tags, metadata, recursion_limit, max_concurrency, configurable.
func WithConfig(config json.RawMessage) RunOption {
	return set(func(inv *invocation) { inv.Config.Config = config })
}

// WithRunContext sets the run's context, which nodes read with ContextOf.
func WithRunContext(context any) RunOption {
	return func(inv *invocation) error {
		v := fromGo(context)
		if err := v.check(); err != nil {
			return fmt.Errorf("WithRunContext: %w", err)
		}
		inv.Context = v.JSON()
		return nil
	}
}

// WithLog sets where the run reports retries, panics of tools, and nodes that do not end. Without it that is slog.Default.
func WithLog(log *slog.Logger) RunOption { return set(func(inv *invocation) { inv.Log = log }) }

// WithStore sets the long-term memory.
func WithStore(s graph.Store) RunOption { return set(func(inv *invocation) { inv.Store = s }) }

// WithDurability says when checkpoints are written: sync (before the next step), async, or exit.
func WithDurability(d string) RunOption { return set(func(inv *invocation) { inv.Durability = d }) }

// WithModes sets what Stream yields, in the words of the API: values, updates, messages-tuple (tokens), custom, tasks, checkpoints, debug, events. Without it that is
// values.
func WithModes(modes ...string) RunOption { return set(func(inv *invocation) { inv.Modes = modes }) }

// WithSubgraphs has Stream yield the events of graphs in nodes too, each with its namespace.
func WithSubgraphs() RunOption { return set(func(inv *invocation) { inv.Subgraphs = true }) }

// set is an option that cannot fail.
func set(apply func(*invocation)) RunOption {
	return func(inv *invocation) error {
		apply(inv)
		return nil
	}
}

// checkOptions returns the error of options. Without it a mistake in them would change nothing, in silence.
func checkOptions(inv *invocation) error {
	if config := inv.Config.Config; len(config) > 0 && (!json.Valid(config) || !gjson.ParseBytes(config).IsObject()) {
		return errors.New("WithConfig: the configuration is not a JSON object")
	}
	if limit := gjson.GetBytes(inv.Config.Config, "recursion_limit"); limit.Exists() && limit.Type != gjson.Number {
		return fmt.Errorf("WithConfig: recursion_limit is a number, not %s", short([]byte(limit.Raw)))
	}
	switch inv.Durability {
	case "", durabilitySync, durabilityAsync, durabilityExit:
	default:
		return fmt.Errorf("WithDurability: %q is not %s, %s or %s", inv.Durability, durabilitySync, durabilityAsync, durabilityExit)
	}
	for _, mode := range inv.Modes {
		if modesOf([]string{mode}, false) == (modes{}) {
			return fmt.Errorf("WithModes: there is no mode %q; use values, updates, messages-tuple, custom, tasks, checkpoints, debug or events", mode)
		}
	}
	switch {
	case inv.Thread == "" && inv.Saver != nil:
		return errors.New("WithThread: the thread has no ID; id.NewThread returns one")
	case inv.Thread != "" && inv.Saver == nil:
		return errors.New("WithThread: there is no saver; checkpointer.NewMemory returns one that keeps threads in memory")
	}
	return nil
}

// inputOf returns the input as an update. Of a struct it takes the fields that are set.
func inputOf(x any) *value {
	rv := reflect.ValueOf(x)
	for rv.Kind() == reflect.Pointer && !rv.IsNil() {
		rv = rv.Elem()
	}
	if rv.Kind() == reflect.Struct && rv.Type() != messageType && !hasMarshaler(rv.Type()) {
		return fromFields(goFields(rv, true))
	}
	return fromGo(x)
}
