package readmodel_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/fault"
)

// rows are the messages of one thread by the names of their rows.
type rows struct {
	readmodel.Store
	readmodel.Reader
	byName map[string]*readmodel.Message
}

func (rows) Reachable(context.Context, id.Thread) error { return nil }
func (rows) Offset(context.Context, string, id.Thread) (*eventstore.Offset, time.Time, error) {
	return nil, time.Time{}, nil
}

func (r rows) Message(_ context.Context, _ id.Thread, name string) (*readmodel.Message, error) {
	return r.byName[name], nil
}

// A message with a long ID is found by it, also when its rows were written before they were named by its digest.
func TestLongIDsOfOldRows(t *testing.T) {
	t.Parallel()
	old, short := strings.Repeat("o", 5000), "m1"
	s := &readmodel.Service{Store: rows{byName: map[string]*readmodel.Message{old: {}, short: {}}}}
	for _, message := range []string{old, short} {
		m, err := s.Message(t.Context(), "t", message)
		require.NoError(t, err)
		require.Equal(t, message, m.ID)
	}
	_, err := s.Message(t.Context(), "t", old+"o")
	require.True(t, fault.Is(err, fault.NotFound), err)
}
