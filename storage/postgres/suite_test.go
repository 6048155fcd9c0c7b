package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fleet"
	"understudy/internal/postgrestest"
	"understudy/proxy/record"
	"understudy/storage/internal/seal"
	"understudy/storage/storagetest"
	"understudy/thread"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

func TestSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.Backend {
		return opened(t, Options{Layout: layoutCompact})
	})
}

// Variants of the storage (TestSuite…) run without the race detector: their goroutines are those of TestSuite.
func TestSuiteLangGraph(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		return opened(t, Options{Layout: layoutLangGraph})
	}
	storagetest.Run(t, open, storagetest.AnyLayout...)
}

// With encryption everything is as without.
func TestSuiteEncrypted(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		return opened(t, Options{Keys: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}})
	}
	storagetest.Run(t, open, storagetest.Loads)
	storagetest.RunEvents(t, open)
	storagetest.RunPages(t, open)
}

// With handlers it is so too, whichever names of metadata they leave readable.
func TestSuiteHandlers(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		return opened(t, Options{Handlers: storagetest.Handlers{}})
	}
	storagetest.Run(t, open, storagetest.Loads)
	storagetest.RunEvents(t, open)
}

// A transaction that reads what another server has encrypted with a new data key asks for the key, and runs again.
func TestDataKeysOfOtherServers(t *testing.T) {
	url := postgrestest.Database(t)
	one := open(t, Options{URL: url, Handlers: storagetest.Handlers{}})
	two := open(t, Options{URL: url, Handlers: storagetest.Handlers{}})
	forget := func() {
		var ids []string
		require.NoError(t, keyTable{one}.Rows(t.Context(), "data_key:", "data_key;", func(key, _ string) error {
			ids = append(ids, key[len(key)-16:])
			return nil
		}))
		for _, id := range ids {
			seal.Forget(id)
		}
	}
	in := encryption.With(t.Context(), `{"tenant":"a"}`)
	row := someThread(1)
	row.Metadata = []byte(`{"secret":"x"}`)
	require.NoError(t, one.write(in, func(tx *Tx) error { return tx.InsertThread(row) }))
	runs := 0
	forget()
	require.NoError(t, two.write(t.Context(), func(tx *Tx) error {
		runs++
		was, err := tx.Thread(row.ID)
		if err == nil {
			require.JSONEq(t, `{"secret":"x"}`, string(was.Metadata))
		}
		return err
	}))
	require.Equal(t, 2, runs)
	forget()
	list, err := two.Threads().Threads(t.Context(), thread.Query{IDs: []id.Thread{row.ID}, Limit: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"secret":"x"}`, string(list[0].Metadata))
}

func TestEvents(t *testing.T) {
	storagetest.RunEvents(t, func(t *testing.T) storagetest.Backend { return opened(t, Options{}) })
}

func TestPages(t *testing.T) {
	storagetest.RunPages(t, func(t *testing.T) storagetest.Backend { return opened(t, Options{}) })
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
	return open(t, Options{URL: migrated(t, Options{})})
}

// migrated returns the address of a database that a store with these options has opened, and nothing else has used.
func migrated(t testing.TB, opts Options) string {
	t.Helper()
	kind := fmt.Sprintf("%s %d %T", opts.Layout, len(opts.Keys), opts.Handlers)
	return postgrestest.Prepared(t, kind, func(url string) error {
		opts.URL = url
		s, err := Open(context.Background(), opts)
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// opened is migrated and backend.
func opened(t *testing.T, opts Options) storagetest.Backend {
	t.Helper()
	opts.URL = migrated(t, opts)
	return backend(t, opts)
}

func backend(t *testing.T, opts Options) storagetest.Backend {
	t.Helper()
	var touched storagetest.Touched
	opts.Touched = touched.Add
	s := open(t, opts)
	return storagetest.Backend{
		Assistants: s.Assistants(), Threads: s.Threads(), Runs: s.Runs(), Items: s.Items(), Keys: s, Sessions: s, Audit: s, Usage: s, Search: s, Feedback: s, JSONB: true, Overhead: overhead(opts), Touched: touched.Take,
		Reopen: func(t *testing.T) storagetest.Backend {
			t.Helper()
			require.NoError(t, s.Close())
			return backend(t, opts)
		},
		Unlist: func(first, last id.Thread) error {
			return s.write(context.Background(), func(tx *Tx) error {
				return errors.Join(tx.exec("DELETE FROM thread_metadata WHERE starts_with(value, '[') AND thread_id BETWEEN $1 AND $2", first, last),
					tx.exec("UPDATE threads SET listed = NULL WHERE thread_id BETWEEN $1 AND $2", first, last))
			})
		},
	}
}

func TestScanSuite(t *testing.T) {
	storagetest.RunScans(t, func(t *testing.T, budget time.Duration) storagetest.Backend {
		return opened(t, Options{SearchTimeout: budget})
	})
}

// overhead is what encryption adds to a value.
func overhead(opts Options) int64 {
	if opts.Keys == nil && opts.Handlers == nil {
		return 0
	}
	return seal.Overhead
}

func TestFleetSuite(t *testing.T) {
	storagetest.Fleet(t, func(t *testing.T) fleet.Store { t.Helper(); return setup(t) })
}
