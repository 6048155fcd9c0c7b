package guard

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"understudy/access"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server"
)

// crons guards server.Crons.
type crons struct {
	*Guard
	inner      server.Crons
	assistants *assistants
}

var _ server.Crons = (*crons)(nil)

// Create asks crons.create, and what its runs need: threads.read for their thread, assistants.read for a private assistant. Its runs act as who
// created it, with the permissions of now.
func (g *crons) Create(ctx context.Context, n run.NewCron) (*run.Cron, error) {
	n.ID = newID(ctx, access.Crons, "create", id.NewCron)
	shown := cronCreated(n)
	if a := access.From(ctx); a != nil && a != access.System {
		shown.SetText(creatorAt, a.Identity)
	}
	_, v, err := g.change(ctx, access.Crons, "create", shown)
	if err != nil {
		return nil, err
	}
	n.Metadata = metadataOf(v.now)
	if v.made("payload") {
		if n.Payload, err = payloadOf(v); err != nil {
			return nil, err
		}
		if named := n.Payload["assistant_id"]; named != nil && json.Unmarshal(named, &n.AssistantID) != nil {
			return nil, errChanged
		}
	}
	if err := g.needs(ctx, &n); err != nil {
		return nil, err
	}
	if n.Payload, err = g.payload(ctx, n.Payload); err != nil {
		return nil, err
	}
	return g.inner.Create(ctx, n)
}

// creatorAt is where handlers see who creates a cron.
const creatorAt = "user_id"

// cronCreated is what handlers see of a new cron, except who creates it.
func cronCreated(n run.NewCron) *jsonobj.Object {
	payload := &jsonobj.Object{}
	payload.SetText("assistant_id", n.AssistantID)
	for _, k := range slices.Sorted(maps.Keys(n.Payload)) {
		payload.Set(k, orNull(n.Payload[k]))
	}
	config := jsonobj.Of(payload.Get("config"))
	withoutActor(config, "configurable")
	configurable := jsonobj.Of(config.Get("configurable"))
	configurable.SetText("cron_id", string(n.ID))
	config.Set("configurable", configurable.JSON())
	payload.Set("config", config.JSON())
	return object(
		"cron_id", jsonobj.Quote(string(n.ID)), "thread_id", named(string(n.Thread)), creatorAt, orNull(nil), "schedule", jsonobj.Quote(n.Schedule), "end_time", encoded(n.EndTime),
		"metadata", orEmpty(n.Metadata), "payload", payload.JSON())
}

// needs asks about the assistant and the thread of the runs of a cron.
func (g *crons) needs(ctx context.Context, n *run.NewCron) error {
	if err := g.assistants.use(ctx, n.AssistantID); errors.Is(err, run.ErrNoThread) {
		return fault.Newf(fault.NotFound, "Assistant '%s' not found", n.AssistantID)
	} else if err != nil {
		return err
	}
	if n.Thread == "" {
		return nil
	}
	narrow, err := g.read(ctx, n.Thread)
	if err == nil && g.hidden(narrow, n.Thread) {
		err = fault.Newf(fault.NotFound, "Thread with ID %s not found", n.Thread)
	}
	return err
}

// payloadOf returns the payload that a handler has left. Which assistant and which cron it is of, the service writes.
func payloadOf(v *change) (map[string]json.RawMessage, error) {
	var p map[string]json.RawMessage
	if json.Unmarshal(v.now.Get("payload"), &p) != nil {
		return nil, errChanged
	}
	return p, nil
}

// payload returns the arguments of runs with the actor in their configuration.
func (g *crons) payload(ctx context.Context, p map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	p = maps.Clone(p)
	if p == nil {
		p = map[string]json.RawMessage{}
	}
	config, err := jsonobj.Parse(orEmpty(p["config"]))
	if err != nil {
		return nil, fault.New(fault.Unprocessable, "config must be an object")
	}
	withoutActor(config, "configurable")
	if a := access.From(ctx); a != access.System {
		c := jsonobj.Of(config.Get("configurable"))
		access.Write(c, a)
		config.Set("configurable", c.JSON())
	}
	p["config"] = config.JSON()
	if c := p["context"]; c != nil {
		p["context"] = noActor(c)
	}
	return p, nil
}

// show returns a cron that the context shows.
func (g *crons) show(ctx context.Context, c id.Cron) (*run.Cron, error) {
	one, err := g.inner.Get(ctx, c)
	if err == nil && !access.Reach(ctx, access.Crons).Match(one.Metadata) {
		return g.inner.Get(ctx, id.NewCron()) // in the words for one that does not exist
	}
	return one, err
}

func (g *crons) Get(ctx context.Context, c id.Cron) (*run.Cron, error) {
	ctx, err := g.on(ctx, access.Crons, "read", "cron_id", string(c))
	if err != nil {
		return nil, err
	}
	return g.show(ctx, c)
}

// cronPatched is what handlers see of a changed cron.
func cronPatched(c id.Cron, p run.CronPatch) *jsonobj.Object {
	value := object(
		"cron_id", jsonobj.Quote(string(c)), "schedule", encoded(p.Schedule), "end_time", encoded(p.EndTime), "enabled", encoded(p.Enabled), "on_run_completed", encoded(p.OnRunCompleted),
		"payload", encoded(p.Payload))
	if p.Metadata != nil {
		value.Set("metadata", orEmpty(p.Metadata))
	}
	return value
}

func (g *crons) Update(ctx context.Context, c id.Cron, p run.CronPatch) (*run.Cron, error) {
	ctx, v, err := g.change(ctx, access.Crons, "update", cronPatched(c, p))
	if err != nil {
		return nil, err
	}
	if v.made("payload") {
		if p.Payload, err = payloadOf(v); err != nil {
			return nil, err
		}
		delete(p.Payload, "assistant_id") // that of a cron stays
	}
	was, err := g.show(ctx, c)
	if err != nil {
		return nil, err
	}
	if m := metadataOf(v.now); m != nil && (p.Metadata != nil || v.made("metadata")) {
		p.Metadata = m
	}
	if _, changes := p.Payload["config"]; changes {
		if p.Payload, err = g.keepActor(was, p.Payload); err != nil {
			return nil, err
		}
	}
	return g.inner.Update(ctx, c, p)
}

// keepActor lets a changed configuration act as who created the cron.
func (g *crons) keepActor(was *run.Cron, p map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	p = maps.Clone(p)
	config, err := jsonobj.Parse(orEmpty(p["config"]))
	if err != nil {
		return nil, fault.New(fault.Unprocessable, "config must be an object")
	}
	withoutActor(config, "configurable")
	old := jsonobj.Of(jsonobj.Of(jsonobj.Of(was.Payload).Get("config")).Get("configurable"))
	c := jsonobj.Of(config.Get("configurable"))
	for _, k := range append([]string{"user_id"}, actorKeys...) {
		if v := old.Get(k); v != nil {
			c.Set(k, v)
		}
	}
	config.Set("configurable", c.JSON())
	p["config"] = config.JSON()
	return p, nil
}

func (g *crons) Delete(ctx context.Context, c id.Cron) error {
	ctx, err := g.on(ctx, access.Crons, "delete", "cron_id", string(c))
	if err != nil {
		return err
	}
	if _, err := g.show(ctx, c); err != nil {
		return err
	}
	return g.inner.Delete(ctx, c)
}

// search asks threads.search too, as LangGraph Server does.
func (g *crons) search(ctx context.Context, q *run.CronQuery) (context.Context, error) {
	narrow, v, err := g.change(ctx, access.Crons, "search", cronsSearched(*q))
	if err == nil { // what a handler writes into metadata it means as a filter as well
		err = v.object(&q.Metadata, "metadata")
	}
	if err != nil {
		return nil, err
	}
	if _, _, err := g.ask(ctx, access.Threads, "search", threadOfCrons(*q)); err != nil {
		return nil, err
	}
	return narrow, nil
}

// cronsSearched and threadOfCrons are what handlers see of a search.
func cronsSearched(q run.CronQuery) *jsonobj.Object {
	return object(
		"assistant_id", named(string(q.Assistant)), "thread_id", named(string(q.Thread)), "metadata", orEmpty(q.Metadata), "limit", encoded(q.Limit), "offset", encoded(q.Offset))
}

func threadOfCrons(q run.CronQuery) *jsonobj.Object {
	return object("thread_id", named(string(q.Thread)))
}

func (g *crons) Search(ctx context.Context, q run.CronQuery) ([]*run.Cron, bool, error) {
	ctx, err := g.search(ctx, &q)
	if err != nil {
		return nil, false, err
	}
	return g.inner.Search(ctx, q)
}

func (g *crons) Count(ctx context.Context, q run.CronQuery) (int, error) {
	ctx, err := g.search(ctx, &q)
	if err != nil {
		return 0, err
	}
	return g.inner.Count(ctx, q)
}
