package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"understudy/graph"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// deployed are twins of the graphs in ../auth, ../app and ../index, by name: those that need no Python themselves.
func deployed() (map[string]graph.Graph, error) {
	graphs := map[string]graph.Graph{}
	for name, build := range map[string]func() (graph.Graph, error){
		"whoami":   func() (graph.Graph, error) { return oneNode(tell) },
		"counter":  func() (graph.Graph, error) { return oneNode(add) },
		"ask":      func() (graph.Graph, error) { return oneNode(demand) },
		"slow":     twoSteps,
		"chat":     chat,
		"remember": remember,
		"echo":     count,
		"headers":  headers,
	} {
		g, err := build()
		if err != nil {
			return nil, fmt.Errorf("graph %s: %w", name, err)
		}
		graphs[name] = g
	}
	return graphs, nil
}

// acting is the state of the graphs in ../auth.
type acting struct {
	N       int               `graph:"n" json:"n,omitempty"`
	Seconds *float64          `graph:"seconds" json:"seconds,omitempty"`
	Seen    json.RawMessage   `graph:"seen" json:"seen,omitempty"`
	Log     []json.RawMessage `graph:"log,reducer=append" json:"log,omitempty"`
}

func oneNode(node func(context.Context, acting) (any, error)) (graph.Graph, error) {
	g := pregel.NewStateGraph[acting]()
	g.AddNode("node", node)
	g.AddEdge(pregel.START, "node").AddEdge("node", pregel.END)
	return g.Compile()
}

// actor is what a run knows of the user for whom it acts.
type actor struct {
	User        json.RawMessage `json:"langgraph_auth_user"`
	ID          json.RawMessage `json:"langgraph_auth_user_id"`
	Permissions json.RawMessage `json:"langgraph_auth_permissions"`
	Claimed     json.RawMessage `json:"user_id"`
}

func actorOf(ctx context.Context) (a actor, metadata map[string]json.RawMessage, err error) {
	info, _ := pregel.Info(ctx)
	var config struct {
		Configurable *actor                     `json:"configurable"`
		Metadata     map[string]json.RawMessage `json:"metadata"`
	}
	config.Configurable = &a
	if err := json.Unmarshal(info.Config, &config); err != nil {
		return a, nil, err
	}
	return a, config.Metadata, nil
}

// tell reports the user, in the form of whoami in ../auth/graphs.py.
func tell(ctx context.Context, _ acting) (any, error) {
	a, metadata, err := actorOf(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]any{
		"user": nil, "user_id": a.ID, "permissions": []string{}, "configurable_user_id": a.Claimed,
		"runtime_user": nil, "metadata_user_id": metadata["langgraph_auth_user_id"],
	}
	if len(a.Permissions) > 0 && string(a.Permissions) != "null" {
		seen["permissions"] = a.Permissions
	}
	if len(a.User) > 0 && string(a.User) != "null" {
		var user struct {
			Identity string `json:"identity"`
		}
		if err := json.Unmarshal(a.User, &user); err != nil {
			return nil, err
		}
		seen["user"] = map[string]any{"attribute": user.Identity, "key": user.Identity, "all": a.User}
		seen["runtime_user"] = user.Identity
	}
	text, err := json.Marshal(seen)
	return pregel.Values{"seen": json.RawMessage(text)}, err
}

func add(_ context.Context, s acting) (any, error) {
	text, err := json.Marshal(s.N)
	return pregel.Values{"n": s.N + 1, "log": []json.RawMessage{text}}, err
}

func demand(ctx context.Context, _ acting) (any, error) {
	answer, err := pregel.Interrupt[json.RawMessage](ctx, map[string]string{"question": "secret of the owner"})
	return pregel.Values{"log": []json.RawMessage{answer}}, err
}

func twoSteps() (graph.Graph, error) {
	g := pregel.NewStateGraph[acting]()
	g.AddNode("first", func(_ context.Context, s acting) (any, error) { return pregel.Values{"n": s.N + 1}, nil })
	g.AddNode("rest", func(ctx context.Context, s acting) (any, error) {
		seconds := 2.0
		if s.Seconds != nil {
			seconds = *s.Seconds
		}
		return pregel.Values{"n": s.N + 1}, sleep(ctx, time.Duration(seconds*float64(time.Second)))
	})
	g.AddEdge(pregel.START, "first").AddEdge("first", "rest").AddEdge("rest", pregel.END)
	return g.Compile()
}

func chat() (graph.Graph, error) {
	g := pregel.NewStateGraph[talk]()
	g.AddNode("reply", func(ctx context.Context, s talk) (any, error) {
		a, _, err := actorOf(ctx)
		if err != nil {
			return nil, err
		}
		who := strings.Trim(string(a.ID), `"`)
		if a.ID == nil {
			who = "None"
		}
		return talk{Messages: []message.Message{message.AI(who + " said " + s.Messages[len(s.Messages)-1].Text())}}, nil
	})
	g.AddEdge(pregel.START, "reply").AddEdge("reply", pregel.END)
	return g.Compile()
}

// plain is the state of the graphs in ../app.
type plain struct {
	N    int             `graph:"n" json:"n,omitempty"`
	Seen json.RawMessage `graph:"seen" json:"seen,omitempty"`
}

func onePlain(node func(context.Context, plain) (any, error)) (graph.Graph, error) {
	g := pregel.NewStateGraph[plain]()
	g.AddNode("node", node)
	g.AddEdge(pregel.START, "node").AddEdge("node", pregel.END)
	return g.Compile()
}

func count() (graph.Graph, error) {
	return onePlain(func(_ context.Context, s plain) (any, error) { return pregel.Values{"n": s.N + 1}, nil })
}

// headers reports the texts in the configuration of the run.
func headers() (graph.Graph, error) {
	return onePlain(func(ctx context.Context, _ plain) (any, error) {
		info, _ := pregel.Info(ctx)
		var config struct {
			Configurable map[string]any `json:"configurable"`
		}
		if err := json.Unmarshal(info.Config, &config); err != nil {
			return nil, err
		}
		maps.DeleteFunc(config.Configurable, func(_ string, v any) bool {
			_, text := v.(string)
			return !text
		})
		text, err := json.Marshal(config.Configurable)
		return pregel.Values{"seen": json.RawMessage(text)}, err
	})
}

// remembering is the state of the graph in ../index.
type remembering struct {
	Namespace []string                   `graph:"namespace" json:"namespace,omitempty"`
	Put       map[string]json.RawMessage `graph:"put" json:"put,omitempty"`
	Query     string                     `graph:"query" json:"query,omitempty"`
	Index     []string                   `graph:"index" json:"index,omitempty"`
	Found     json.RawMessage            `graph:"found" json:"found,omitempty"`
}

// remember writes items and searches, as remember in ../index/graphs.py.
func remember() (graph.Graph, error) {
	g := pregel.NewStateGraph[remembering]()
	g.AddNode("node", func(ctx context.Context, s remembering) (any, error) {
		var index json.RawMessage
		if s.Index != nil {
			var err error
			if index, err = json.Marshal(s.Index); err != nil {
				return nil, err
			}
		}
		store := pregel.StoreOf(ctx)
		for _, key := range slices.Sorted(maps.Keys(s.Put)) {
			put := &graph.StorePut{Namespace: s.Namespace, Key: key, Value: s.Put[key], Index: index}
			if _, err := store.Batch(ctx, []graph.StoreOp{{Put: put}}); err != nil {
				return nil, err
			}
		}
		results, err := store.Batch(ctx, []graph.StoreOp{{Search: &graph.StoreSearch{Prefix: s.Namespace, Query: s.Query, Limit: 5}}})
		if err != nil {
			return nil, err
		}
		found := [][2]any{}
		for _, item := range results[0].Items {
			found = append(found, [2]any{item.Key, item.Score})
		}
		text, err := json.Marshal(found)
		return pregel.Values{"found": json.RawMessage(text)}, err
	})
	g.AddEdge(pregel.START, "node").AddEdge("node", pregel.END)
	return g.Compile()
}
