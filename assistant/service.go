package assistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/limits"
)

// Graphs are the graphs for assistants.
type Graphs interface {
	Graph(id string) (graph.Graph, bool)
	Names() []string // sorted
	// Description returns the description of a graph in the configuration; "": none.
	Description(id string) string
}

// Service manages assistants.
type Service struct {
	// Threads deletes the threads of an assistant, if requested with its deletion.
	Threads Threads

	store  Store
	graphs Graphs
	now    func() time.Time
}

// NewService returns a Service. now may be nil: the clock of the machine.
func NewService(store Store, graphs Graphs, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	return &Service{store: store, graphs: graphs, now: now}
}

var (
	empty     = json.RawMessage(`{}`)
	errAbsent = fault.New(fault.NotFound, "Not Found")
)

func notFound(a id.Assistant) error { return fault.Newf(fault.NotFound, "Assistant %s not found", a) }

// EnsureDefaults creates the default assistant of every graph that has none, and updates descriptions. configs are the configurations of
// default assistants by graph; an assistant that a client has changed keeps its own.
func (s *Service) EnsureDefaults(ctx context.Context, configs map[string]json.RawMessage) error {
	names := s.graphs.Names()
	for n := 0; ; n++ {
		// A server that starts at the same time may insert an assistant after this one checked for it. The next attempt finds
		// it.
		if err := s.ensureDefaults(ctx, names, configs); !fault.Is(err, fault.Conflict) || n == len(names) {
			return err
		}
	}
}

// ensureDefaults is one attempt of EnsureDefaults.
func (s *Service) ensureDefaults(ctx context.Context, names []string, configs map[string]json.RawMessage) error {
	return s.store.Write(ctx, func(tx Tx) error {
		for _, name := range names {
			var description *string
			if d := s.graphs.Description(name); d != "" {
				description = &d
			}
			config, runContext, err := mirror(configs[name], nil)
			if err != nil {
				return fmt.Errorf("configuration of graph %s: %w", name, err)
			}
			old, err := tx.Assistant(id.DefaultAssistant(name))
			if err == nil {
				configured := old.Version > 1 || sameJSON(old.Config, config)
				if configured && text(old.Description) == text(description) {
					continue
				}
				old.Description = description
				if !configured {
					old.Config, old.Context = config, runContext
				}
				if err := tx.PutAssistant(old, false); err != nil {
					return fmt.Errorf("describe assistant of graph %s: %w", name, err)
				}
				continue
			}
			if !fault.Is(err, fault.NotFound) {
				return err
			}
			now := s.now()
			err = tx.InsertAssistant(&Assistant{
				ID: id.DefaultAssistant(name), GraphID: name, Name: name, Description: description, Config: config, Context: runContext,
				Metadata: json.RawMessage(`{"created_by":"system"}`), Version: 1, CreatedAt: now, UpdatedAt: now,
			})
			if err != nil {
				return fmt.Errorf("make assistant of graph %s: %w", name, err)
			}
		}
		return nil
	})
}

// sameJSON compares values independent of the order of members, which a database may change.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// retries is how often it is looked again for an assistant that another request makes.
const retries = 10

// Create creates an assistant.
func (s *Service) Create(ctx context.Context, n New) (*Assistant, error) {
	if err := s.checkGraph(n.GraphID); err != nil {
		return nil, err
	}
	if err := limits.Metadata(n.Metadata); err != nil {
		return nil, err
	}
	if err := limits.Name(n.Name); err != nil {
		return nil, err
	}
	config, runContext, err := mirror(n.Config, n.Context)
	if err != nil {
		return nil, err
	}
	now := s.now()
	a := &Assistant{
		ID: n.ID, GraphID: n.GraphID, Name: n.Name, Description: n.Description, Config: config, Context: runContext,
		Metadata: orEmpty(n.Metadata), Version: 1, CreatedAt: now, UpdatedAt: now,
	}
	if a.ID == "" {
		a.ID = id.NewAssistant()
	}
	if a.Name == "" {
		a.Name = Untitled
	}
	out := a
	create := func(tx Tx) error {
		old, err := tx.Assistant(a.ID)
		switch {
		case fault.Is(err, fault.NotFound):
			out = a
			return tx.InsertAssistant(a)
		case err != nil:
			return err
		case n.IfExists == "do_nothing":
			out = old
			return nil
		default:
			return fault.Newf(fault.Conflict, "Assistant %s already exists", a.ID)
		}
	}
	err = s.store.Write(ctx, create)
	// Another request may have made it after this one had looked, and a third one may have deleted it. One that is out of reach stays a conflict.
	for i := 0; i < retries && n.IfExists == "do_nothing" && fault.Is(err, fault.Conflict); i++ {
		err = s.store.Write(ctx, create)
	}
	if err != nil {
		return nil, fmt.Errorf("create assistant: %w", err)
	}
	return out, nil
}

func (s *Service) checkGraph(name string) error {
	if _, ok := s.graphs.Graph(name); ok {
		return nil
	}
	return fault.Newf(fault.NotFound, "Graph '%s' not found. Expected one of: ['%s']", name, strings.Join(s.graphs.Names(), "', '"))
}

// mirror makes `context` and `config.configurable` equal: the one that was given is copied to the other.
func mirror(config, runContext json.RawMessage) (json.RawMessage, json.RawMessage, error) {
	c, err := jsonobj.Parse(config)
	if err != nil {
		return nil, nil, fault.New(fault.Unprocessable, "config must be an object")
	}
	configurable := jsonobj.Of(c.Get("configurable"))
	given := len(runContext) > 0 && string(runContext) != "null" && jsonobj.Of(runContext).Len() > 0
	switch {
	case given && configurable.Len() > 0:
		return nil, nil, fault.New(fault.Invalid,
			"Cannot specify both configurable and context. Prefer setting context alone. Context was introduced in LangGraph 0.6.0 and is the long term planned replacement for configurable.")
	case given:
		c.Set("configurable", runContext)
		return c.JSON(), runContext, nil
	case configurable.Len() > 0:
		return c.JSON(), configurable.JSON(), nil
	default:
		return c.JSON(), empty, nil
	}
}

// configure applies a patch. An empty config changes nothing; one without configurable leaves the context unchanged.
func (a *Assistant) configure(config, runContext json.RawMessage) error {
	newConfig, newContext, err := mirror(config, runContext)
	if err != nil {
		return err
	}
	if jsonobj.Of(newConfig).Len() > 0 {
		a.Config = newConfig
	}
	if len(runContext) > 0 || jsonobj.Of(newContext).Len() > 0 {
		a.Context = newContext
	}
	return nil
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return empty
	}
	return raw
}

// Get returns the current version.
func (s *Service) Get(ctx context.Context, a id.Assistant) (*Assistant, error) {
	row, err := s.store.Assistant(ctx, a)
	if fault.Is(err, fault.NotFound) {
		return nil, errAbsent
	}
	return row, err
}

// Update creates a new version.
func (s *Service) Update(ctx context.Context, a id.Assistant, p Patch) (*Assistant, error) {
	if p.GraphID != nil {
		if err := s.checkGraph(*p.GraphID); err != nil {
			return nil, err
		}
	}
	if p.Name != nil {
		if err := limits.Name(*p.Name); err != nil {
			return nil, err
		}
	}
	var out *Assistant
	err := s.store.Write(ctx, func(tx Tx) error {
		row, err := tx.Assistant(a)
		if err != nil {
			return err
		}
		last, err := tx.LastVersion(a)
		if err != nil {
			return err
		}
		row.Version = last + 1
		row.UpdatedAt = s.now()
		if p.GraphID != nil {
			row.GraphID = *p.GraphID
		}
		if p.Name != nil {
			row.Name = *p.Name
		}
		if p.Description != nil {
			row.Description = p.Description
		}
		if p.Metadata != nil {
			if row.Metadata, err = limits.MergeMetadata(row.Metadata, p.Metadata); err != nil {
				return err
			}
		}
		if err := row.configure(p.Config, p.Context); err != nil {
			return err
		}
		out = row
		return tx.PutAssistant(row, true)
	})
	if fault.Is(err, fault.NotFound) {
		return nil, notFound(a)
	}
	if err != nil {
		return nil, fmt.Errorf("update assistant %s: %w", a, err)
	}
	return out, nil
}

// Delete deletes an assistant, and if withThreads is set the threads that carry its id. These are deleted first, in transactions of their own: if
// that is interrupted, the assistant still exists, and the request can be repeated.
func (s *Service) Delete(ctx context.Context, a id.Assistant, withThreads bool) error {
	for more := true; more; {
		var threads []id.Thread
		err := s.store.Write(ctx, func(tx Tx) (err error) {
			if _, err := tx.Assistant(a); err != nil {
				return err
			}
			if threads = nil; withThreads {
				if threads, err = tx.ThreadsOf(a); err != nil {
					return err
				}
			}
			if more = len(threads) > 0; more {
				return nil
			}
			return tx.DeleteAssistant(a)
		})
		if fault.Is(err, fault.NotFound) {
			return fault.Newf(fault.NotFound, "Assistant with ID %s not found", a)
		}
		if err == nil && more {
			_, err = s.Threads.Remove(ctx, threads)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Search returns a page, and whether there are more results.
func (s *Service) Search(ctx context.Context, q Query) ([]*Assistant, bool, error) {
	if q.GraphID != "" || q.OfGraph {
		if err := s.checkGraph(q.GraphID); err != nil {
			return nil, false, err
		}
	}
	limit := q.Limit
	if limit > 0 {
		q.Limit++
	}
	page, err := s.store.Assistants(ctx, q)
	if err != nil {
		return nil, false, err
	}
	if limit > 0 && len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

// Count returns the number of all assistants that Search would find.
func (s *Service) Count(ctx context.Context, q Query) (int, error) {
	if q.GraphID != "" || q.OfGraph {
		if err := s.checkGraph(q.GraphID); err != nil {
			return 0, err
		}
	}
	return s.store.CountAssistants(ctx, q)
}

// Versions returns versions, highest first.
func (s *Service) Versions(ctx context.Context, a id.Assistant, metadata json.RawMessage, limit, offset int) ([]*Assistant, error) {
	if _, err := s.store.Assistant(ctx, a); fault.Is(err, fault.NotFound) {
		return nil, notFound(a)
	} else if err != nil {
		return nil, err
	}
	return s.store.Versions(ctx, a, metadata, limit, offset)
}

// SetLatest sets the current version of an assistant.
func (s *Service) SetLatest(ctx context.Context, a id.Assistant, version int) (*Assistant, error) {
	var out *Assistant
	err := s.store.Write(ctx, func(tx Tx) error {
		current, err := tx.Assistant(a)
		if fault.Is(err, fault.NotFound) {
			return notFound(a)
		}
		if err != nil {
			return err
		}
		v, err := tx.Version(a, version)
		if fault.Is(err, fault.NotFound) {
			return fault.Newf(fault.NotFound, "Version %d not found for assistant %s", version, a)
		}
		if err != nil {
			return err
		}
		v.CreatedAt = current.CreatedAt
		v.UpdatedAt = s.now()
		out = v
		return tx.PutAssistant(v, false)
	})
	return out, err
}

// Drawing returns {nodes, edges}. It also takes the name of a graph.
func (s *Service) Drawing(ctx context.Context, idOrGraph string, xray int) (json.RawMessage, error) {
	if _, ok := s.graphs.Graph(idOrGraph); ok {
		idOrGraph = string(id.DefaultAssistant(idOrGraph))
	} else if !id.IsUUID(idOrGraph) {
		return nil, fault.New(fault.Unprocessable, "Invalid assistant ID: must be a UUID")
	}
	return s.describe(ctx, id.Assistant(id.Canonical(idOrGraph)), graph.DescribeWhat{Kind: "graph", XRay: xray})
}

// Schemas returns {graph_id, input_schema, output_schema, state_schema, config_schema, runContextschema}.
func (s *Service) Schemas(ctx context.Context, a id.Assistant) (json.RawMessage, error) {
	row, err := s.Get(ctx, a)
	if err != nil {
		return nil, err
	}
	schemas, err := s.describe(ctx, a, graph.DescribeWhat{Kind: "schemas"})
	if err != nil {
		return nil, err
	}
	o := &jsonobj.Object{}
	o.SetText("graph_id", row.GraphID)
	o.Merge(jsonobj.Of(schemas))
	return o.JSON(), nil
}

// Subgraphs returns {namespace: schemas}.
func (s *Service) Subgraphs(ctx context.Context, a id.Assistant, namespace string, recurse bool) (json.RawMessage, error) {
	return s.describe(ctx, a, graph.DescribeWhat{Kind: "subgraphs", Namespace: namespace, Recurse: recurse})
}

// Graphs returns the IDs of the graphs that this server has, sorted. Assistants of others cannot run.
func (s *Service) Graphs() []string { return s.graphs.Names() }

// Nodes returns where the code of the nodes of its graph is, as graph.Nodes.
func (s *Service) Nodes(ctx context.Context, a id.Assistant) (json.RawMessage, error) {
	return s.describe(ctx, a, graph.DescribeWhat{Kind: "nodes"})
}

func (s *Service) describe(ctx context.Context, a id.Assistant, what graph.DescribeWhat) (json.RawMessage, error) {
	row, err := s.Get(ctx, a)
	if err != nil {
		return nil, err
	}
	g, ok := s.graphs.Graph(row.GraphID)
	if !ok {
		return nil, s.checkGraph(row.GraphID)
	}
	described, err := g.Describe(ctx, graph.Config{Config: row.Config, Context: row.Context}, what)
	if f := (*graph.Failure)(nil); errors.As(err, &f) && !fault.Is(err, fault.Unavailable) {
		// The graph or the assistant's configuration is the cause: a run would fail with the same error.
		return nil, fault.Wrap(fault.Unprocessable, f.Type+": "+f.Message, err)
	}
	return described, err
}
