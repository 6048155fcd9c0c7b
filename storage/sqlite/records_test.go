package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
)

// Records that an older version stored one by one are read with those in packs, and deleted.
func TestRecordsOfOlderVersions(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var want []*bridge.Record
	for n := range int64(9) {
		want = append(want, &bridge.Record{Run: "r", Offset: bridge.Offset{MS: n, N: n}, Kind: bridge.Token, Event: "messages", Data: []byte("[]"), Kept: true})
	}
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		if err := tx.InsertRun(&run.Run{ID: "r", Thread: "t", Assistant: "a", Graph: "g", Metadata: []byte("{}"), Status: run.Running, Strategy: run.Enqueue}); err != nil {
			return err
		}
		for _, rec := range want[3:6] {
			if err := tx.exec("INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, checkpoint_id) VALUES (?, ?, ?, ?, ?, 1, ?, ?, '')",
				id.Thread("t"), rec.Offset.MS, rec.Offset.N, rec.Run, int(rec.Kind), rec.Event, rec.Data); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, s.KeepRecords(t.Context(), map[id.Thread][]*bridge.Record{"t": append([]*bridge.Record{want[0], want[1], want[2]}, want[6:]...)}))
	got, err := s.Records(t.Context(), "t", bridge.Offset{MS: -1}, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
	var deleted int
	require.NoError(t, s.write(t.Context(), func(tx *Tx) (err error) {
		deleted, err = tx.deleteRecords("r")
		return err
	}))
	require.Equal(t, len(want), deleted)
}
