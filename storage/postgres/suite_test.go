package postgres

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fleet"
	"understudy/internal/postgrestest"
	"understudy/proxy/record"
	"understudy/storage/internal/seal"
	"understudy/storage/storagetest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

func TestSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.Backend {
		return backend(t, Options{URL: postgrestest.Database(t), Layout: layoutCompact})
	})
}

// Variants of the storage (TestSuite…) run without the race detector: their goroutines are those of TestSuite.
func TestSuiteLangGraph(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		return backend(t, Options{URL: postgrestest.Database(t), Layout: layoutLangGraph})
	}
	storagetest.Run(t, open, storagetest.AnyLayout...)
}

// With encryption everything is as without.
func TestSuiteEncrypted(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		return backend(t, Options{URL: postgrestest.Database(t), Keys: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}})
	}
	storagetest.Run(t, open, storagetest.Loads)
	storagetest.RunEvents(t, open)
	storagetest.RunPages(t, open)
}

func TestEvents(t *testing.T) {
	storagetest.RunEvents(t, func(t *testing.T) storagetest.Backend { return backend(t, Options{URL: postgrestest.Database(t)}) })
}

func TestPages(t *testing.T) {
	storagetest.RunPages(t, func(t *testing.T) storagetest.Backend { return backend(t, Options{URL: postgrestest.Database(t)}) })
}

func TestUpstreamSuite(t *testing.T) {
	storagetest.RunUpstream(t, func(t *testing.T) record.Store {
		return open(t, Options{URL: postgrestest.Database(t), Schema: "upstream_x"}).Upstream()
	})
}

// open opens a store that is closed with the test. Many tests share one server: each store has few
// connections.
func open(t testing.TB, opts Options) *Store {
	t.Helper()
	opts.Connections = max(opts.Connections, 4)
	s, err := Open(context.Background(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func setup(t testing.TB) *Store {
	t.Helper()
	return open(t, Options{URL: postgrestest.Database(t)})
}

func backend(t *testing.T, opts Options) storagetest.Backend {
	t.Helper()
	var touched storagetest.Touched
	opts.Touched = touched.Add
	s := open(t, opts)
	return storagetest.Backend{
		Assistants: s.Assistants(), Threads: s.Threads(), Runs: s.Runs(), Items: s.Items(), Keys: s, Sessions: s, Audit: s, Usage: s, Search: s, JSONB: true, Overhead: overhead(opts), Touched: touched.Take,
		Reopen: func(t *testing.T) storagetest.Backend {
			t.Helper()
			require.NoError(t, s.Close())
			return backend(t, opts)
		},
	}
}

func TestScanSuite(t *testing.T) {
	storagetest.RunScans(t, func(t *testing.T, budget time.Duration) storagetest.Backend {
		return backend(t, Options{URL: postgrestest.Database(t), SearchTimeout: budget})
	})
}

// overhead is what encryption adds to a value.
func overhead(opts Options) int64 {
	if opts.Keys == nil {
		return 0
	}
	return seal.Overhead
}

func TestFleetSuite(t *testing.T) {
	storagetest.Fleet(t, func(t *testing.T) fleet.Store { t.Helper(); return setup(t) })
}
