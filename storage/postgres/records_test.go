package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/internal/postgrestest"
	"understudy/run"
)

// Records of an attempt that was overtaken are left out, as are those of a run that is gone.
// Records are written again when the outcome of their commit is unknown.
func TestRecordsOfAttempts(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: postgrestest.Database(t)})
	th := someThread(1)
	r := &run.Run{
		ID: "r1", Thread: th.ID, Assistant: "a", Graph: "g", Metadata: []byte(`{}`), Status: run.Running, Strategy: run.Enqueue,
		CreatedAt: time.Now(), UpdatedAt: time.Now(), Attempt: 2, Kwargs: run.Arguments{Config: []byte(`{}`)},
	}
	record := func(run string, ms int64, attempt int, index int64) *bridge.Record {
		return &bridge.Record{Run: r.ID, Offset: bridge.Offset{MS: ms}, Event: run, Data: []byte("{}"), Kept: true, Attempt: attempt, Index: index}
	}
	gone := record("gone", 9, 1, 1)
	gone.Run = "r2"
	first := []*bridge.Record{record("late", 1, 1, 7), record("one", 2, 2, 1), gone, record("unknown", 4, 0, 0)}
	again := []*bridge.Record{first[1], record("two", 3, 2, 2)}
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		if err := tx.InsertThread(th); err != nil {
			return err
		}
		return tx.InsertRun(r)
	}))
	for _, batch := range [][]*bridge.Record{first, again} {
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.InsertRecords(th.ID, batch) }))
	}
	got, err := s.Records(t.Context(), th.ID, bridge.Offset{}, 0)
	require.NoError(t, err)
	require.Equal(t, []*bridge.Record{first[1], again[1], first[3]}, got)
}
