package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access/audit"
	"understudy/internal/seedtest"
)

// memory is a store that may fail.
type memory struct {
	mu      sync.Mutex
	entries []audit.Entry
	writes  int
	fails   func() bool
	trims   []time.Time
}

func (m *memory) AppendAudit(_ context.Context, entries []audit.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if m.fails != nil && m.fails() {
		return errors.New("away")
	}
	m.entries = append(m.entries, entries...)
	return nil
}

func (m *memory) Audit(context.Context, audit.Query) ([]audit.Entry, error) { return m.entries, nil }

func (m *memory) TrimAudit(_ context.Context, before time.Time, _, _ int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trims = append(m.trims, before)
	return 0, nil
}

func (m *memory) total() (n int) {
	for _, e := range m.entries {
		n += e.Count
	}
	return n
}

func start(t *testing.T, store *memory, exists func(id string) (bool, error)) (l *audit.Log, stop func()) {
	t.Helper()
	l = audit.NewLog(audit.Options{
		Store: store, Retention: time.Hour, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Exists: func(_ context.Context, resource, id string) (bool, error) {
			if resource != "thread" {
				t.Errorf("asked for %s", resource)
			}
			return exists(id)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return l, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// Whatever is added is counted once, although writes fail, and in few writes and entries.
func TestEachRefusalCountsOnce(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))   //nolint:gosec // a test
				failures := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a test
				store := &memory{fails: func() bool { return failures.IntN(3) == 0 }}
				l, stop := start(t, store, nil)
				want, sources := 0, 1+random.IntN(300)
				began := time.Now()
				for range 50 {
					for range random.IntN(200) {
						l.Add(audit.Entry{Event: audit.SignInFailed, Source: fmt.Sprint(random.IntN(sources))})
						want++
					}
					time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
				}
				seconds := int(time.Since(began)/time.Second) + 1
				store.mu.Lock()
				store.fails = nil
				store.mu.Unlock()
				stop()
				require.Equal(t, want, store.total())
				require.LessOrEqual(t, store.writes, seconds+2, "a write in a second")
				require.LessOrEqual(t, len(store.entries), 101*(seconds+2))
			})
		})
	}
}

func TestHiddenResourcesCountIfTheyExist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, away := &memory{}, atomic.Bool{}
		away.Store(true)
		l, stop := start(t, store, func(id string) (bool, error) {
			if away.Swap(false) {
				return false, errors.New("away")
			}
			return id == "hers", nil
		})
		for _, id := range []string{"none", "hers", "hers"} {
			l.AddHidden(audit.Entry{Event: audit.Denied, Resource: id}, "thread", id)
		}
		time.Sleep(time.Minute) // in which the lookup that failed is repeated
		stop()
		require.Len(t, store.entries, 1)
		require.Equal(t, []any{"hers", 2}, []any{store.entries[0].Resource, store.entries[0].Count})
	})
}

func TestTextsAreBoundedAndPrintable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		l, stop := start(t, store, nil)
		l.Add(audit.Entry{Event: audit.Denied, Identity: "a\n\x1b[2Jb\xff", Resource: strings.Repeat("x", 10_000)})
		(*audit.Log)(nil).Add(audit.Entry{})
		stop()
		require.Equal(t, "a  [2Jb?", store.entries[0].Identity)
		require.Less(t, len(store.entries[0].Resource), 400)
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, began := &memory{}, time.Now()
		_, stop := start(t, store, nil)
		time.Sleep(150 * time.Minute)
		stop()
		require.Len(t, store.trims, 3)
		for i, before := range store.trims {
			require.True(t, began.Add(time.Duration(i-1)*time.Hour).Equal(before), "%d: %s", i, before)
		}
	})
}
