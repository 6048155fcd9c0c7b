package thread_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/storage/postgres/migratedtest"
	"understudy/thread"
)

// fleeting is a storage whose threads another client deletes as soon as they are committed.
type fleeting struct{ thread.Store }

func (s fleeting) Write(ctx context.Context, fn func(thread.Tx) error) error {
	if err := s.Store.Write(ctx, fn); err != nil {
		return err
	}
	return s.Store.Write(ctx, func(tx thread.Tx) error { return tx.DeleteThread("t") })
}

// A thread that was made, or found, is the answer, also when it is deleted before it is shown.
func TestCreateBesideADeletion(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"sqlite": t.TempDir(), "postgres": migratedtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, where)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			lasting := thread.NewService(thread.Options{Store: r.Threads()})
			s := thread.NewService(thread.Options{Store: fleeting{r.Threads()}})
			absent := func() {
				_, err := lasting.Get(t.Context(), "t")
				require.True(t, fault.Is(err, fault.NotFound), err)
			}
			made := thread.New{ID: "t", Metadata: json.RawMessage(`{"a":1}`), IfExists: "do_nothing"}
			v, err := s.Create(t.Context(), made)
			require.NoError(t, err)
			require.Equal(t, []any{id.Thread("t"), `{"a":1}`, thread.Idle}, []any{v.ID, string(v.Metadata), v.Status})
			absent()

			first, err := lasting.Create(t.Context(), made)
			require.NoError(t, err)
			grow(t, r, "t", 0, 1)
			v, err = s.Create(t.Context(), thread.New{ID: "t", Metadata: json.RawMessage(`{"a":2}`), IfExists: "do_nothing"})
			require.NoError(t, err)
			require.Equal(t, []any{id.Thread("t"), `{"a":1}`, first.CreatedAt.UnixMicro()}, []any{v.ID, string(v.Metadata), v.CreatedAt.UnixMicro()})
			absent()

			_, err = s.Create(t.Context(), thread.New{ID: "t", Supersteps: [][]graph.StateUpdate{{{Values: json.RawMessage(`{}`)}}}})
			require.True(t, fault.Is(err, fault.Conflict), err)
			require.ErrorContains(t, err, "was deleted by another request")
		})
	}
}

// A thread whose initial state could not be set is there, and the error says so: an unknown graph is no unknown thread.
func TestCreateWithoutItsState(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir())
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	s := thread.NewService(thread.Options{Store: r.Threads(), Graphs: noGraphs{}})
	for name, metadata := range map[id.Thread]string{"none": `{}`, "unknown": `{"graph_id":"nowhere"}`} {
		_, err := s.Create(t.Context(), thread.New{ID: name, Metadata: json.RawMessage(metadata), Supersteps: [][]graph.StateUpdate{{{Values: json.RawMessage(`{}`)}}}})
		var made *thread.NotUpdated
		require.ErrorAs(t, err, &made, name)
		_, err = s.Get(t.Context(), name)
		require.NoError(t, err)
	}
}

// noGraphs serves none.
type noGraphs struct{}

func (noGraphs) Graph(string) (graph.Graph, bool) { return nil, false }
