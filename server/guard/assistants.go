package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"understudy/access"
	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server"
)

// assistants guards server.Assistants.
type assistants struct {
	*Guard
	inner server.Assistants
}

var _ server.Assistants = (*assistants)(nil)

// may asks about one assistant, and finds it.
func (g *assistants) may(ctx context.Context, action string, a id.Assistant, more ...any) (context.Context, *change, error) {
	ctx, v, err := g.change(ctx, access.Assistants, action, assistantNamed(a, more...))
	if err != nil {
		return nil, nil, err
	}
	if _, err := g.inner.Get(ctx, a); err != nil {
		return nil, nil, err
	}
	return ctx, v, nil
}

// assistantNamed is what handlers see of an assistant that exists.
func assistantNamed(a id.Assistant, more ...any) *jsonobj.Object {
	return object(append([]any{"assistant_id", jsonobj.Quote(string(a))}, more...)...)
}

func (g *assistants) Create(ctx context.Context, n assistant.New) (*assistant.Assistant, error) {
	if n.ID == "" {
		n.ID = newID(ctx, access.Assistants, "create", id.NewAssistant)
	}
	narrow, v, err := g.change(ctx, access.Assistants, "create", assistantCreated(n))
	if err == nil {
		err = errors.Join(v.object(&n.Config, "config"), v.object(&n.Context, "context"))
	}
	if err != nil {
		return nil, err
	}
	n.Metadata = metadataOf(v.now)
	made, err := g.inner.Create(ctx, n)
	if err != nil {
		return nil, err
	}
	if f := access.Reach(narrow, access.Assistants); n.IfExists == "do_nothing" && !f.Match(made.Metadata) {
		return nil, fault.Newf(fault.Conflict, "Assistant with ID %s already exists", n.ID)
	}
	return made, nil
}

// assistantCreated is what handlers see of a new assistant.
func assistantCreated(n assistant.New) *jsonobj.Object {
	return object(
		"assistant_id", jsonobj.Quote(string(n.ID)), "graph_id", jsonobj.Quote(n.GraphID), "config", orEmpty(n.Config), "context", orNull(n.Context), "metadata", orEmpty(n.Metadata),
		"name", jsonobj.Quote(cmp.Or(n.Name, assistant.Untitled)), "if_exists", named(n.IfExists))
}

func (g *assistants) Get(ctx context.Context, a id.Assistant) (*assistant.Assistant, error) {
	ctx, _, err := g.ask(ctx, access.Assistants, "read", assistantNamed(a))
	if err != nil {
		return nil, err
	}
	return g.inner.Get(ctx, a)
}

func (g *assistants) Update(ctx context.Context, a id.Assistant, p assistant.Patch) (*assistant.Assistant, error) {
	ctx, v, err := g.may(ctx, "update", a, assistantPatched(p)...)
	if err == nil {
		err = errors.Join(v.object(&p.Config, "config"), v.object(&p.Context, "context"))
	}
	if err != nil {
		return nil, err
	}
	if m := metadataOf(v.now); m != nil {
		p.Metadata = m
	}
	return g.inner.Update(ctx, a, p)
}

// assistantPatched is what handlers see of a changed assistant besides its name.
func assistantPatched(p assistant.Patch) []any {
	text := func(s *string) json.RawMessage {
		if s == nil {
			return nil
		}
		return jsonobj.Quote(*s)
	}
	return []any{"graph_id", text(p.GraphID), "name", text(p.Name), "metadata", orEmpty(p.Metadata), "config", orEmpty(p.Config), "context", orNull(p.Context)}
}

func (g *assistants) Delete(ctx context.Context, a id.Assistant, withThreads bool) error {
	ctx, _, err := g.may(ctx, "delete", a)
	if err != nil {
		return err
	}
	if withThreads { // of the actor's own
		if ctx, _, err = g.ask(ctx, access.Threads, "delete", object("assistant_id", jsonobj.Quote(string(a)))); err != nil {
			return err
		}
	}
	return g.inner.Delete(ctx, a, withThreads)
}

func (g *assistants) search(ctx context.Context, q *assistant.Query) (context.Context, error) {
	ctx, v, err := g.change(ctx, access.Assistants, "search", assistantsSearched(*q))
	if err == nil { // what a handler writes into metadata it means as a filter as well
		err = v.object(&q.Metadata, "metadata")
	}
	return ctx, err
}

// assistantsSearched is what handlers see of a search.
func assistantsSearched(q assistant.Query) *jsonobj.Object {
	return object("graph_id", named(q.GraphID), "metadata", orEmpty(q.Metadata), "limit", encoded(q.Limit), "offset", encoded(q.Offset))
}

func (g *assistants) Search(ctx context.Context, q assistant.Query) ([]*assistant.Assistant, bool, error) {
	ctx, err := g.search(ctx, &q)
	if err != nil {
		return nil, false, err
	}
	return g.inner.Search(ctx, q)
}

func (g *assistants) Count(ctx context.Context, q assistant.Query) (int, error) {
	ctx, err := g.search(ctx, &q)
	if err != nil {
		return 0, err
	}
	return g.inner.Count(ctx, q)
}

func (g *assistants) Versions(ctx context.Context, a id.Assistant, metadata json.RawMessage, limit, offset int) ([]*assistant.Assistant, error) {
	ctx, _, err := g.may(ctx, "read", a)
	if err != nil {
		return nil, err
	}
	return g.inner.Versions(ctx, a, metadata, limit, offset)
}

func (g *assistants) SetLatest(ctx context.Context, a id.Assistant, version int) (*assistant.Assistant, error) {
	ctx, _, err := g.may(ctx, "update", a, "version", encoded(version))
	if err != nil {
		return nil, err
	}
	return g.inner.SetLatest(ctx, a, version)
}

// Drawing is open for graphs, which everybody may run.
func (g *assistants) Drawing(ctx context.Context, idOrGraph string, xray int) (json.RawMessage, error) {
	if a := id.Canonical(idOrGraph); a != "" {
		var err error
		if ctx, _, err = g.may(ctx, "read", id.Assistant(a)); err != nil {
			return nil, err
		}
	}
	return g.inner.Drawing(ctx, idOrGraph, xray)
}

// Graphs is open, as runs and drawings of graphs are.
func (g *assistants) Graphs() []string { return g.inner.Graphs() }

func (g *assistants) Nodes(ctx context.Context, a id.Assistant) (json.RawMessage, error) {
	ctx, _, err := g.may(ctx, "read", a)
	if err != nil {
		return nil, err
	}
	return g.inner.Nodes(ctx, a)
}

func (g *assistants) Schemas(ctx context.Context, a id.Assistant) (json.RawMessage, error) {
	ctx, _, err := g.may(ctx, "read", a)
	if err != nil {
		return nil, err
	}
	return g.inner.Schemas(ctx, a)
}

func (g *assistants) Subgraphs(ctx context.Context, a id.Assistant, namespace string, recurse bool) (json.RawMessage, error) {
	ctx, _, err := g.may(ctx, "read", a)
	if err != nil {
		return nil, err
	}
	return g.inner.Subgraphs(ctx, a, namespace, recurse)
}

// use asks whether an assistant may be used in a run or a cron.
func (g *assistants) use(ctx context.Context, idOrGraph string) error {
	if access.From(ctx) == access.System {
		return nil
	}
	a, err := g.restricted(ctx, idOrGraph)
	if a == "" {
		return err
	}
	_, err = g.Get(ctx, a)
	if fault.Is(err, fault.NotFound) {
		return run.ErrNoThread
	}
	return err
}

// restricted returns the assistant of a run or a cron that not everybody may use; "" when there is none. Graphs are used by name, whatever is said of their assistants.
func (g *assistants) restricted(ctx context.Context, idOrGraph string) (id.Assistant, error) {
	a := id.Assistant(id.Canonical(idOrGraph))
	if a == "" {
		return "", nil
	}
	one, err := g.inner.Get(ctx, a)
	switch {
	case fault.Is(err, fault.NotFound): // the service says so
		return "", nil
	case err != nil:
		return "", err
	case a == id.DefaultAssistant(one.GraphID):
		return "", nil
	}
	return a, nil
}
