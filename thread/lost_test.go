package thread

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
)

// lostStore has a thread whose values are there, and one of whose values a part is lost. Its other methods are not called.
type lostStore struct{ Store }

func (lostStore) Thread(_ context.Context, t id.Thread) (*Thread, error) {
	return &Thread{ID: t, Head: "c"}, nil
}

func (s lostStore) Threads(context.Context, Query) ([]*Thread, error) {
	return []*Thread{{ID: "lost", Head: "c"}, {ID: "whole", Head: "c"}}, nil
}

func (lostStore) Scan(ctx context.Context, _ string, fn func(context.Context) error) error {
	return fn(ctx)
}

type lostSnapshots struct{ Snapshots }

func (lostSnapshots) Values(_ context.Context, k checkpointer.Key) (json.RawMessage, error) {
	if k.Thread == "lost" {
		return nil, fmt.Errorf("checkpoint c: %w", checkpointer.ErrLost)
	}
	return json.RawMessage(`{"a":1}`), nil
}

func (s lostSnapshots) Pick(ctx context.Context, k checkpointer.Key, picks []checkpointer.Pick) ([]json.RawMessage, bool, error) {
	if _, err := s.Values(ctx, k); err != nil {
		return nil, false, err
	}
	return []json.RawMessage{json.RawMessage("1")}, true, nil
}

// A thread of whose values a part is lost is shown with the reason, and does not keep lists from being shown.
func TestAThreadWhoseValuesAreLost(t *testing.T) {
	t.Parallel()
	require.Equal(t, fault.Lost, fault.KindOf(fmt.Errorf("checkpoint c: %w", checkpointer.ErrLost)))
	s := NewService(Options{Store: lostStore{}, Snapshots: lostSnapshots{}})
	why := `{"error":"ValuesLost","message":"A part of the state of this thread is lost`
	v, err := s.Get(t.Context(), "lost")
	require.NoError(t, err)
	require.Nil(t, v.Values)
	require.True(t, v.Touched, "the error is shown")
	require.Contains(t, string(v.Error), why)
	require.True(t, json.Valid(v.Error))
	for name, c := range map[string]struct {
		q    Search
		want []string // with their values
	}{
		"all":       {Search{Query: Query{Limit: 10}}, []string{"lost ", `whole {"a":1}`}},
		"by values": {Search{Query: Query{Limit: 10}, Values: json.RawMessage(`{"a":1}`)}, []string{`whole {"a":1}`}},
		"extracts":  {Search{Query: Query{Limit: 10}, NoValues: true, Extract: map[string]string{"a": "values.a"}}, []string{`lost {"a":null}`, `whole {"a":1}`}},
	} {
		page, _, err := s.Search(t.Context(), c.q)
		require.NoError(t, err, name)
		var got []string
		for _, v := range page {
			require.NoError(t, s.Show(t.Context(), c.q, v), name)
			got = append(got, fmt.Sprintf("%s %s%s", v.ID, v.Values, v.Extracted))
		}
		require.Equal(t, c.want, got, name)
	}
}

// That values of a thread are lost is logged once in a while, however often lists show it.
func TestLostValuesAreLoggedSeldom(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Unix(1_700_000_000, 0)
	s := NewService(Options{Store: lostStore{}, Snapshots: lostSnapshots{}, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now }})
	for _, want := range []int{1, 2} {
		for range 3 {
			_, err := s.Get(t.Context(), "lost")
			require.NoError(t, err)
		}
		require.Equal(t, want, strings.Count(log.String(), "without its values"), log.String())
		now = now.Add(lostEvery)
	}
}
