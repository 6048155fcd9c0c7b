package assistant_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/limits"
	"understudy/storage/sqlite"
)

// drawn is a graph that can only be described.
type drawn struct{ graph.Graph }

func (drawn) Describe(_ context.Context, _ graph.Config, what graph.DescribeWhat) (json.RawMessage, error) {
	return json.RawMessage(`{"kind":"` + what.Kind + `"}`), nil
}

// broken is a graph that cannot be imported.
type broken struct{ graph.Graph }

func (broken) Describe(context.Context, graph.Config, graph.DescribeWhat) (json.RawMessage, error) {
	return nil, &graph.Failure{Type: "RuntimeError", Message: "no such model", Detail: "Traceback"}
}

func open(t *testing.T) *sqlite.Store {
	t.Helper()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rows.Close()) })
	return rows
}

// The graph, schemas and subgraphs of a graph that cannot be imported answer with the reason, as its runs do.
func TestDescribingABrokenGraph(t *testing.T) {
	t.Parallel()
	rows := open(t)
	graphs := graph.NewRegistry()
	require.NoError(t, graphs.Add("broken", "", broken{}))
	s := assistant.NewService(rows.Assistants(), graphs, nil)
	require.NoError(t, s.EnsureDefaults(t.Context(), nil))
	a := id.DefaultAssistant("broken")
	for name, ask := range map[string]func() (json.RawMessage, error){
		"graph":     func() (json.RawMessage, error) { return s.Drawing(t.Context(), "broken", 0) },
		"schemas":   func() (json.RawMessage, error) { return s.Schemas(t.Context(), a) },
		"subgraphs": func() (json.RawMessage, error) { return s.Subgraphs(t.Context(), a, "", true) },
	} {
		_, err := ask()
		var f *fault.Error
		require.ErrorAs(t, err, &f, name)
		require.Equal(t, []any{fault.Unprocessable, "RuntimeError: no such model"}, []any{f.Kind, f.Message}, name)
	}
}

func setup(t *testing.T) *assistant.Service {
	t.Helper()
	rows := open(t)
	graphs := graph.NewRegistry()
	require.NoError(t, graphs.Add("agent", "what it is for", drawn{}))
	require.NoError(t, graphs.Add("other", "", drawn{}))
	s := assistant.NewService(rows.Assistants(), graphs, nil)
	require.NoError(t, s.EnsureDefaults(t.Context(), nil))
	require.NoError(t, s.EnsureDefaults(t.Context(), nil), "twice is as good as once")
	return s
}

func TestEveryGraphHasADefaultAssistant(t *testing.T) {
	t.Parallel()
	s := setup(t)
	a, err := s.Get(t.Context(), id.DefaultAssistant("agent"))
	require.NoError(t, err)
	require.Equal(t, "agent", a.Name)
	require.Equal(t, "what it is for", *a.Description)
	require.Equal(t, 1, a.Version)
	require.JSONEq(t, `{"created_by":"system"}`, string(a.Metadata))
	n, err := s.Count(t.Context(), assistant.Query{})
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

// What LANGGRAPH_CONFIG says of a graph is the configuration of its default assistant, until a client changes that.
func TestDefaultsAreConfigured(t *testing.T) {
	t.Parallel()
	s := setup(t)
	check := func(configs, wantConfig, wantContext string, wantVersion int) {
		t.Helper()
		var by map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(configs), &by))
		require.NoError(t, s.EnsureDefaults(t.Context(), by))
		a, err := s.Get(t.Context(), id.DefaultAssistant("agent"))
		require.NoError(t, err)
		require.JSONEq(t, wantConfig, string(a.Config))
		require.JSONEq(t, wantContext, string(a.Context))
		require.Equal(t, wantVersion, a.Version)
	}
	check(`{"agent":{"tags":["t"],"configurable":{"n":1}},"absent":{}}`, `{"tags":["t"],"configurable":{"n":1}}`, `{"n":1}`, 1)
	check(`{"agent":{"configurable":{"n":2}}}`, `{"configurable":{"n":2}}`, `{"n":2}`, 1)
	check(`{}`, `{}`, `{}`, 1)
	_, err := s.Update(t.Context(), id.DefaultAssistant("agent"), assistant.Patch{Config: json.RawMessage(`{"tags":["own"]}`)})
	require.NoError(t, err)
	check(`{"agent":{"configurable":{"n":2}}}`, `{"tags":["own"]}`, `{}`, 2)
}

func TestContextAndConfigurableMirrorEachOther(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, tt := range []struct {
		name, config, context         string
		wantConfig, wantContext, fail string
	}{
		{name: "neither", wantConfig: `{}`, wantContext: `{}`},
		{name: "context", context: `{"a":1}`, wantConfig: `{"configurable":{"a":1}}`, wantContext: `{"a":1}`},
		{name: "configurable", config: `{"tags":["t"],"configurable":{"a":1}}`, wantConfig: `{"tags":["t"],"configurable":{"a":1}}`, wantContext: `{"a":1}`},
		{name: "both", config: `{"configurable":{"a":1}}`, context: `{"a":1}`, fail: "Cannot specify both configurable and context."},
		{name: "both, one empty", config: `{"configurable":{}}`, context: `{"a":1}`, wantConfig: `{"configurable":{"a":1}}`, wantContext: `{"a":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := s.Create(t.Context(), assistant.New{GraphID: "agent", Config: json.RawMessage(tt.config), Context: json.RawMessage(tt.context)})
			if tt.fail != "" {
				require.ErrorContains(t, err, tt.fail)
				require.Equal(t, fault.Invalid, fault.KindOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.wantConfig, string(a.Config))
			require.Equal(t, tt.wantContext, string(a.Context))
		})
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	s := setup(t)
	a, err := s.Create(t.Context(), assistant.New{GraphID: "agent", Name: "one", Metadata: json.RawMessage(`{"k":1}`), Context: json.RawMessage(`{"c":1}`)})
	require.NoError(t, err)
	two, graphID := "two", "other"
	b, err := s.Update(t.Context(), a.ID, assistant.Patch{Name: &two, GraphID: &graphID, Metadata: json.RawMessage(`{"j":2}`), Context: json.RawMessage(`{"c":2}`)})
	require.NoError(t, err)
	require.Equal(t, 2, b.Version)
	require.JSONEq(t, `{"k":1,"j":2}`, string(b.Metadata))

	back, err := s.SetLatest(t.Context(), a.ID, 1)
	require.NoError(t, err)
	require.Equal(t, "one", back.Name)
	require.JSONEq(t, `{"c":1}`, string(back.Context), "the context goes back with the rest")
	c, err := s.Update(t.Context(), a.ID, assistant.Patch{Name: &two})
	require.NoError(t, err)
	require.Equal(t, 3, c.Version, "numbers go on from the highest")

	_, err = s.SetLatest(t.Context(), a.ID, 9)
	require.EqualError(t, err, "Version 9 not found for assistant "+string(a.ID))
	versions, err := s.Versions(t.Context(), a.ID, nil, 10, 0)
	require.NoError(t, err)
	require.Len(t, versions, 3)
}

func TestUnknownThings(t *testing.T) {
	t.Parallel()
	s := setup(t)
	none := id.NewAssistant()
	_, err := s.Create(t.Context(), assistant.New{GraphID: "nope"})
	require.EqualError(t, err, "Graph 'nope' not found. Expected one of: ['agent', 'other']")
	for what, call := range map[string]func() error{
		"get":      func() error { _, err := s.Get(t.Context(), none); return err },
		"update":   func() error { _, err := s.Update(t.Context(), none, assistant.Patch{}); return err },
		"delete":   func() error { return s.Delete(t.Context(), none, false) },
		"versions": func() error { _, err := s.Versions(t.Context(), none, nil, 10, 0); return err },
		"latest":   func() error { _, err := s.SetLatest(t.Context(), none, 1); return err },
		"schemas":  func() error { _, err := s.Schemas(t.Context(), none); return err },
	} {
		require.Equal(t, fault.NotFound, fault.KindOf(call()), what)
	}
	_, err = s.Drawing(t.Context(), "neither", 0)
	require.Equal(t, fault.Unprocessable, fault.KindOf(err))
	d, err := s.Drawing(t.Context(), "agent", 0)
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"graph"}`, string(d))
}

func TestExistingID(t *testing.T) {
	t.Parallel()
	s := setup(t)
	a, err := s.Create(t.Context(), assistant.New{GraphID: "agent", Name: "first"})
	require.NoError(t, err)
	_, err = s.Create(t.Context(), assistant.New{ID: a.ID, GraphID: "agent"})
	require.Equal(t, fault.Conflict, fault.KindOf(err))
	same, err := s.Create(t.Context(), assistant.New{ID: a.ID, GraphID: "agent", Name: "second", IfExists: "do_nothing"})
	require.NoError(t, err)
	require.Equal(t, "first", same.Name)
}

// late is a store whose first transaction looks for assistants before another server has committed them, and inserts them afterwards.
type late struct {
	assistant.Store
	writes int
}

func (l *late) Write(ctx context.Context, fn func(assistant.Tx) error) error {
	l.writes++
	first := l.writes == 1
	return l.Store.Write(ctx, func(tx assistant.Tx) error {
		if first {
			tx = blind{tx}
		}
		return fn(tx)
	})
}

type blind struct{ assistant.Tx }

func (blind) Assistant(id.Assistant) (*assistant.Assistant, error) {
	return nil, fault.New(fault.NotFound, "assistant not found")
}

func TestServersThatStartAtOnceMakeTheSameDefaults(t *testing.T) {
	t.Parallel()
	rows := open(t)
	graphs := graph.NewRegistry()
	require.NoError(t, graphs.Add("agent", "", drawn{}))
	require.NoError(t, assistant.NewService(rows.Assistants(), graphs, nil).EnsureDefaults(t.Context(), nil))
	require.NoError(t, assistant.NewService(&late{Store: rows.Assistants()}, graphs, nil).EnsureDefaults(t.Context(), nil))
}

// A name that is too long is refused, with the limit, when an assistant is made or changed.
func TestLongNames(t *testing.T) {
	t.Parallel()
	s := setup(t)
	fits := strings.Repeat("é", limits.NameBytes/2)
	a, err := s.Create(t.Context(), assistant.New{GraphID: "agent", Name: fits})
	require.NoError(t, err)
	for _, long := range []string{fits + "x", strings.Repeat("x", 1<<20)} {
		_, err := s.Create(t.Context(), assistant.New{GraphID: "agent", Name: long})
		require.True(t, fault.Is(err, fault.Unprocessable), err)
		_, err = s.Update(t.Context(), a.ID, assistant.Patch{Name: &long})
		require.True(t, fault.Is(err, fault.Unprocessable), err)
		require.ErrorContains(t, err, "the limit is 65536")
	}
	same, err := s.Get(t.Context(), a.ID)
	require.NoError(t, err)
	require.Equal(t, []any{fits, 1}, []any{same.Name, same.Version})
}

// An assistant that another request makes meanwhile is found, or taken.
func TestCreateBesideAnotherRequest(t *testing.T) {
	t.Parallel()
	rows := open(t)
	graphs := graph.NewRegistry()
	require.NoError(t, graphs.Add("agent", "", drawn{}))
	first, err := assistant.NewService(rows.Assistants(), graphs, nil).Create(t.Context(), assistant.New{GraphID: "agent"})
	require.NoError(t, err)
	for _, ifExists := range []string{"do_nothing", "raise"} {
		s := assistant.NewService(&late{Store: rows.Assistants()}, graphs, nil)
		found, err := s.Create(t.Context(), assistant.New{ID: first.ID, GraphID: "agent", Name: "second", IfExists: ifExists})
		if ifExists == "raise" {
			require.True(t, fault.Is(err, fault.Conflict), err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, first.Name, found.Name)
	}
}
