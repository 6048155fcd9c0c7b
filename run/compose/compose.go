// Package compose makes the row of a run of what its request, its assistant and its thread say.
package compose

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"understudy/access"
	"understudy/assistant"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/header"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/thread"
)

// Thread is the row of a thread that is made for a run, with the metadata of the request. A temporary thread has them only when an actor made the request:
// by them its policy finds the thread.
func Thread(t id.Thread, req *run.Request, temporary bool, now time.Time) *thread.Thread {
	empty := json.RawMessage(`{}`)
	row := &thread.Thread{ID: t, CreatedAt: now, StateUpdatedAt: now, Metadata: empty, Config: empty}
	if !temporary || req.Actor != nil {
		given := jsonobj.Of(jsonobj.Of(req.Config).Get("metadata"))
		given.Merge(jsonobj.Of(req.Metadata))
		row.Metadata = given.JSON()
	}
	return row
}

// Run makes a pending run as an assistant and a request want it, and changes its thread's row to what it is during the run. A temporary one goes with its thread;
// ttl is of threads without one of their own.
func Run(as *assistant.Assistant, row *thread.Thread, req *run.Request, stateless, temporary bool, ttl *thread.TTL, now time.Time) (*run.Run, error) {
	r := &run.Run{
		ID: cmp.Or(req.ID, id.NewRun()), Thread: row.ID, Assistant: as.ID, Graph: as.GraphID, Status: run.Pending, Strategy: req.Strategy,
		CreatedAt: now.Add(req.After), UpdatedAt: now, OnCompletion: req.OnCompletion, OnDisconnect: req.OnDisconnect, Cron: req.Cron,
	}
	if err := configure(r, as, row, req, stateless, now); err != nil {
		return nil, err
	}
	r.Kwargs.Temporary = temporary

	if !temporary { // a thread that is deleted with its run is not searched for
		meta := jsonobj.Of(row.Metadata)
		meta.SetText("graph_id", as.GraphID)
		meta.SetText("assistant_id", string(as.ID))
		row.Metadata = meta.JSON()
		row.Renew(ttl)
	}
	row.Config = threadConfig(as, row, req)
	row.Status = thread.Busy
	row.UpdatedAt = now
	return r, nil
}

// threadConfig is the configuration that a thread has after a run was created on it, and with which its graph is built when no run is there to
// say more: the assistant's, then what the thread had, then the request's but for its configurable, which is of that run alone.
func threadConfig(as *assistant.Assistant, row *thread.Thread, req *run.Request) json.RawMessage {
	config, had := jsonobj.Of(as.Config), jsonobj.Of(row.Config)
	configurable := jsonobj.Of(config.Get("configurable"))
	configurable.Merge(jsonobj.Of(had.Get("configurable")))
	config.Merge(had)
	config.Merge(jsonobj.Of(req.Config))
	config.Set("configurable", configurable.JSON())
	return config.JSON()
}

// configure merges what assistant, thread and request say into the run's arguments. Later wins.
func configure(r *run.Run, as *assistant.Assistant, t *thread.Thread, req *run.Request, stateless bool, now time.Time) error {
	given := jsonobj.Of(req.Config)
	ownConfigurable := jsonobj.Of(given.Get("configurable"))
	ownContext := jsonobj.Of(req.Context)
	if ownConfigurable.Len() > 0 && ownContext.Len() > 0 {
		return fault.New(fault.Invalid, "Cannot specify both configurable and context. Prefer setting context alone. Context was introduced in LangGraph 0.6.0 and is the long term planned replacement for configurable.")
	}

	r.Metadata = metadataOf(as, t, req, stateless)

	runContext := jsonobj.Of(as.Context)
	if ownContext.Len() > 0 {
		runContext.Merge(ownContext)
	} else {
		runContext.Merge(ownConfigurable)
	}

	config := jsonobj.Of(as.Config)
	configurable := jsonobj.Of(config.Get("configurable"))
	configurable.Merge(jsonobj.Of(jsonobj.Of(t.Config).Get("configurable")))
	configurable.Merge(ownConfigurable)
	configurable.Merge(ownContext)
	server := serverKeys(r, as, req, configurable.Get("user_id"), now)
	configurable.Merge(server)
	encryption.Write(configurable, req.Encryption)
	config.Merge(given)
	config.Delete("configurable") // for its place, which is last
	config.Delete("metadata")
	config.Set("configurable", configurable.JSON())
	config.Set("metadata", r.Metadata)

	r.Kwargs = req.Arguments
	r.Kwargs.Config, r.Kwargs.Context = config.JSON(), runContext.JSON()
	if ownContext.Len() > 0 { // the assistant's context too: its configurable repeats it
		runContext.Each(func(k string, _ json.RawMessage) {
			if server.Get(k) == nil {
				r.Kwargs.ContextKeys = append(r.Kwargs.ContextKeys, k)
			}
		})
	}
	return nil
}

// metadataOf returns the metadata of a run: the assistant's, the thread's and the request's, and what the server adds.
func metadataOf(as *assistant.Assistant, t *thread.Thread, req *run.Request, stateless bool) json.RawMessage {
	metadata := jsonobj.Of(as.Metadata)
	metadata.Merge(jsonobj.Of(t.Metadata))
	metadata.Merge(jsonobj.Of(jsonobj.Of(req.Config).Get("metadata")))
	metadata.Merge(jsonobj.Of(req.Metadata))
	metadata.Merge(jsonobj.Of(req.OwnMetadata))
	if !stateless { // a temporary thread has no metadata from which it would come
		metadata.SetText("graph_id", as.GraphID)
	}
	metadata.SetText("assistant_id", string(as.ID))
	return metadata.JSON()
}

// serverKeys returns the keys of configurable that the server writes, no client. user is the user_id of the request.
func serverKeys(r *run.Run, as *assistant.Assistant, req *run.Request, user json.RawMessage, now time.Time) *jsonobj.Object {
	server := jsonobj.Of(nil)
	for name, value := range req.Headers {
		if header.IsJSON(name, value) {
			server.Set(name, json.RawMessage(value))
		} else {
			server.SetText(name, value)
		}
	}
	if req.Cron != "" {
		server.SetText("cron_id", string(req.Cron))
	}
	identify(server, req.Actor, user)
	server.SetText("langgraph_request_id", req.RequestID)
	if req.Tracer != nil {
		server.Set("__langsmith_project__", orNull(req.Tracer.Project))
		server.Set("__langsmith_example_id__", orNull(req.Tracer.Example))
	}
	writeTrace(server, req)
	if req.EventStreaming {
		server.Set(run.EventStreamingKey, json.RawMessage("true"))
	}
	server.Set("__request_start_time_ms__", strconv.AppendInt(nil, now.UnixMilli(), 10))
	server.Set("__after_seconds__", strconv.AppendInt(nil, int64(req.After/time.Second), 10))
	server.SetText("run_id", string(r.ID))
	server.SetText("thread_id", string(r.Thread))
	server.SetText("graph_id", as.GraphID)
	server.SetText("assistant_id", string(as.ID))
	return server
}

// identify writes who the run acts as; nil when requests are not authenticated. Only then the user_id of the client stays (user; nil if it sent
// none), by which many graphs find their memories: LangGraph Server lets it win always, and a client could pass for another user.
func identify(configurable *jsonobj.Object, actor *access.Actor, user json.RawMessage) {
	if actor == nil || actor == access.System {
		configurable.Set("langgraph_auth_user", orNull(nil))
		configurable.SetText("langgraph_auth_user_id", "")
		configurable.Set("langgraph_auth_permissions", json.RawMessage(`[]`))
		if user == nil {
			configurable.SetText("user_id", "")
		}
		return
	}
	access.Write(configurable, actor)
}

func orNull(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return json.RawMessage(`null`)
	}
	return v
}

// Carry puts the trace and the encryption context of ctx, if there are any, into the request, where the executing server finds them.
func Carry(ctx context.Context, req *run.Request) {
	if req.Encryption == "" {
		req.Encryption = encryption.Of(ctx)
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	req.TraceParent, req.TraceState = headers["traceparent"], headers["tracestate"]
}

// writeTrace is the other half of Carry.
func writeTrace(configurable *jsonobj.Object, req *run.Request) {
	if req.TraceParent == "" {
		return
	}
	configurable.SetText(run.TraceParentKey, req.TraceParent)
	if req.TraceState != "" {
		configurable.SetText(run.TraceStateKey, req.TraceState)
	}
}
