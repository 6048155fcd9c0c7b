package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/internal/fault"
	"understudy/storage/sqlite"
	"understudy/store"
)

func setup(t *testing.T) (s *store.Service, now *time.Time) {
	t.Helper()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rows.Close()) })
	clock := time.Now()
	return store.NewService(rows.Items(), func() time.Time { return clock }), &clock
}

func TestNamespacesAreChecked(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	for _, tt := range []struct {
		namespace []string
		kind      fault.Kind
	}{
		{nil, fault.Invalid},
		{[]string{"langgraph"}, fault.Invalid},
		{[]string{""}, fault.Unprocessable},
		{[]string{"a", "b.c"}, fault.Unprocessable},
	} {
		err := s.Put(t.Context(), store.Item{Namespace: tt.namespace, Key: "k", Value: json.RawMessage(`{}`)})
		require.Equal(t, tt.kind, fault.KindOf(err), "%q: %v", tt.namespace, err)
		_, err = s.Batch(t.Context(), []graph.StoreOp{{Put: &graph.StorePut{Namespace: tt.namespace, Key: "k", Value: json.RawMessage(`{}`)}}})
		require.Equal(t, tt.kind, fault.KindOf(err), "%q: %v", tt.namespace, err)
	}
	_, err := s.Get(t.Context(), []string{"a.b"}, "k", nil)
	require.EqualError(t, err, "Namespace label 'a.b' must be a non-empty string without periods")
}

// A graph reads what was there before its batch, as with LangGraph's own stores, and its writes are one transaction.
func TestBatchReadsBeforeItWrites(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	ns := []string{"n"}
	results, err := s.Batch(t.Context(), []graph.StoreOp{
		{Put: &graph.StorePut{Namespace: ns, Key: "k", Value: json.RawMessage(`{"v":1}`)}},
		{Get: &graph.StoreGet{Namespace: ns, Key: "k"}},
		{Put: &graph.StorePut{Namespace: ns, Key: "k", Value: json.RawMessage(`{"v":2}`)}},
		{Search: &graph.StoreSearch{Prefix: ns, Limit: 10}},
	})
	require.NoError(t, err)
	require.Nil(t, results[1].Item)
	require.Empty(t, results[3].Items)
	i, err := s.Get(t.Context(), ns, "k", nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"v":2}`, string(i.Value), "the last write wins")
	results, err = s.Batch(t.Context(), []graph.StoreOp{
		{Get: &graph.StoreGet{Namespace: ns, Key: "k"}},
		{List: &graph.StoreList{Limit: 10}},
		{Put: &graph.StorePut{Namespace: ns, Key: "k"}},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"v":2}`, string(results[0].Item.Value))
	require.Equal(t, [][]string{ns}, results[1].Namespaces)
	i, err = s.Get(t.Context(), ns, "k", nil)
	require.NoError(t, err)
	require.Nil(t, i, "no value deletes")
}

func TestReadingPostponesTheExpiry(t *testing.T) {
	t.Parallel()
	s, now := setup(t)
	ns := []string{"n"}
	put := func(key string) {
		require.NoError(t, s.Put(t.Context(), store.Item{Namespace: ns, Key: key, Value: json.RawMessage(`{}`), TTL: time.Hour}))
	}
	put("read")
	*now = now.Add(time.Minute)
	got, err := s.Get(t.Context(), ns, "read", nil)
	require.NoError(t, err)
	require.Equal(t, now.Add(time.Hour).UnixMicro(), got.ExpiresAt.UnixMicro())
	no := false
	again, err := s.Get(t.Context(), ns, "read", &no)
	require.NoError(t, err)
	require.Equal(t, got.ExpiresAt.UnixMicro(), again.ExpiresAt.UnixMicro())
}
