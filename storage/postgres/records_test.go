package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
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
		require.NoError(t, s.KeepRecords(t.Context(), map[id.Thread][]*bridge.Record{th.ID: batch}))
	}
	got, err := s.Records(t.Context(), th.ID, bridge.Offset{}, 0)
	require.NoError(t, err)
	require.Equal(t, []*bridge.Record{first[1], again[1], first[3]}, got)
}

// Servers of the version before store records one by one, also after a migration, and those of this one read both.
func TestRecordsOfOlderServers(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s, conn := open(t, Options{URL: address}), connect(t, address)
	th := someThread(1)
	r := &run.Run{
		ID: "r1", Thread: th.ID, Assistant: "a", Graph: "g", Metadata: []byte(`{}`), Status: run.Running, Strategy: run.Enqueue,
		CreatedAt: time.Now(), UpdatedAt: time.Now(), Attempt: 2, Kwargs: run.Arguments{Config: []byte(`{}`)},
	}
	var want []*bridge.Record
	for n := range int64(9) {
		want = append(want, &bridge.Record{Run: r.ID, Offset: bridge.Offset{MS: n, N: n}, Kind: bridge.Token, Event: "messages", Data: []byte("[]"), Kept: true, Attempt: 2, Index: n + 1})
	}
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		if err := tx.InsertThread(th); err != nil {
			return err
		}
		return tx.InsertRun(r)
	}))
	require.NoError(t, s.KeepRecords(t.Context(), map[id.Thread][]*bridge.Record{th.ID: append([]*bridge.Record{want[0], want[1], want[2]}, want[6:]...)}))
	for _, rec := range want[3:6] {
		_, err := conn.Exec(t.Context(), "INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, checkpoint_id, attempt, idx) VALUES ($1, $2, $3, $4, $5, 1, $6, $7, '', $8, $9)",
			string(th.ID), rec.Offset.MS, rec.Offset.N, string(rec.Run), int(rec.Kind), rec.Event, rec.Data, rec.Attempt, rec.Index)
		require.NoError(t, err)
	}
	got, err := s.Records(t.Context(), th.ID, bridge.Offset{MS: -1}, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		r.Status, r.EndedAt = run.Success, time.UnixMicro(1)
		if err := tx.UpdateRun(r); err != nil {
			return err
		}
		n, err := tx.DeleteRecords(time.Now())
		require.Equal(t, len(want), n)
		return err
	}))
}
