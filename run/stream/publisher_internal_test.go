package stream

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
)

// fullDisk is a store that refuses records while it is full, and has those that it did not refuse.
type fullDisk struct {
	run.Store
	full bool
	has  []*bridge.Record
}

func (s *fullDisk) KeepRecords(_ context.Context, records map[id.Thread][]*bridge.Record) error {
	if s.full {
		return errors.New("disk full")
	}
	for _, r := range records {
		s.has = append(s.has, r...)
	}
	return nil
}

// Records that the database refused until patience was over stay in the live stream, also when it has what came after them: together they have all of it.
func TestRefusedRecordsStayInTheLiveStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live, store := bridge.NewMemory(bridge.Options{}), &fullDisk{}
		p := NewPublisher(PublisherOptions{Store: store, Bridge: live, Log: slog.New(slog.DiscardHandler)})
		write := func(records ...*bridge.Record) {
			require.NoError(t, live.Publish(t.Context(), "t", records))
			var batch []kept
			for _, r := range records {
				batch = append(batch, kept{thread: "t", record: r})
			}
			p.writeRecords(t.Context(), batch)
		}
		record := func(kind bridge.Kind) *bridge.Record {
			return &bridge.Record{Run: "r", Kind: kind, Kept: true, Stored: true}
		}
		refused := []*bridge.Record{record(0), record(0)}
		store.full = true
		write(refused...)
		store.full = false
		write(record(bridge.Terminal))
		require.Len(t, store.has, 1)
		s, err := live.Subscribe(t.Context(), "t", &bridge.Offset{})
		require.NoError(t, err)
		defer s.Close()
		replayed, err := s.Replay(t.Context())
		require.NoError(t, err)
		require.Equal(t, refused, replayed)
	})
}
