package search_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/thread/search"
)

// slow is a store whose writes take a while, with messages to index and ones that a backfill finds.
type slow struct {
	search.Store
	mu       sync.Mutex
	waiting  int
	missing  int
	indexed  int
	writing  time.Duration
	failures int
}

func (s *slow) ToIndex(_ context.Context, limit int) ([]search.Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return make([]search.Document, min(limit, s.waiting)), nil
}

func (s *slow) PutWords(_ context.Context, list []search.Document) error {
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 {
		s.failures--
		return errors.New("full")
	}
	s.writing += 10 * time.Millisecond
	s.waiting -= len(list)
	s.indexed += len(list)
	return nil
}

func (s *slow) NoteMissing(_ context.Context, above int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing == 0 {
		return 0, nil
	}
	n := min(s.missing, 30)
	s.missing -= n
	s.waiting += n
	return above + int64(n), nil
}

// Everything is indexed, what was there before too, after failures too, and writing takes a twentieth of the time.
func TestIndexer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{waiting: 950, missing: 100, failures: 1}
		x := search.NewIndexer(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = x.Run(ctx, s) })
		began := time.Now()
		count := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.indexed
		}
		for count() < 1050 {
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, s.writing*20, time.Since(began)+time.Second)
		require.Less(t, time.Since(began), 20*time.Second)
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.waiting = 1
		s.mu.Unlock()
		x.Saved()
		began = time.Now()
		for count() < 1051 {
			time.Sleep(time.Millisecond)
		}
		require.Less(t, time.Since(began), time.Second, "a message can soon be found")
		cancel()
		group.Wait()
	})
}
