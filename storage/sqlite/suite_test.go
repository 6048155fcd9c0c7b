package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/storage/internal/seal"
	"understudy/storage/storagetest"
)

func TestSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.Backend {
		return backend(t, Options{Dir: t.TempDir(), Synchronous: "normal", Layout: layoutCompact})
	})
}

// Variants of the storage (TestSuite…) run without the race detector: their goroutines are those of TestSuite.
func TestSuiteLangGraph(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		return backend(t, Options{Dir: t.TempDir(), Synchronous: "normal", Layout: layoutLangGraph})
	}
	storagetest.Run(t, open, storagetest.AnyLayout...)
}

// With encryption everything is as without.
func TestSuiteEncrypted(t *testing.T) {
	keys := [][]byte{[]byte("0123456789abcdef0123456789abcdef"), []byte("an older one....")}
	layouts := []string{layoutCompact, layoutLangGraph}
	if !seedtest.InFull() {
		layouts = layouts[:1]
	}
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			open := func(t *testing.T) storagetest.Backend {
				return backend(t, Options{Dir: t.TempDir(), Synchronous: "normal", Layout: layout, Keys: keys})
			}
			storagetest.Run(t, open, storagetest.Loads)
			storagetest.RunEvents(t, open)
			storagetest.RunPages(t, open)
		})
	}
}

// With handlers it is so too, whichever names of metadata they leave readable.
func TestSuiteHandlers(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		return backend(t, Options{Dir: t.TempDir(), Synchronous: "normal", Handlers: storagetest.Handlers{}})
	}
	storagetest.Run(t, open, storagetest.Loads)
	storagetest.RunEvents(t, open)
}

// A function that writes may run several times, because another one in its group failed: what it
// did before it was undone must not show.
func TestSuiteRunsWritesTwice(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		s, err := Open(t.Context(), Options{Dir: InMemory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		s.writer.rehearse = true
		return storagetest.Backend{Assistants: s.Assistants(), Threads: s.Threads(), Runs: s.Runs(), Items: s.Items(), Keys: s, Sessions: s, Audit: s, Usage: s, Search: s, Feedback: s, Unlist: unlist(s)}
	}
	storagetest.Run(t, open, storagetest.Loads)
	storagetest.RunEvents(t, open)
	storagetest.RunPages(t, open)
}

func TestSuiteInMemory(t *testing.T) {
	open := func(t *testing.T) storagetest.Backend {
		b := backend(t, Options{Dir: InMemory})
		b.Reopen = nil
		return b
	}
	storagetest.Run(t, open, storagetest.Loads)
	storagetest.RunEvents(t, open)
	storagetest.RunPages(t, open)
}

func TestInMemoryLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := Open(context.Background(), Options{Dir: InMemory})
	require.NoError(t, err)
	dir := s.remove
	require.DirExists(t, dir)
	require.NoError(t, s.Close())
	require.NoDirExists(t, dir)
}

// templates are databases without content, by layout and keys: migrations take most of the time of a short test.
var templates sync.Map

// fromTemplate copies an empty database with these options into their folder, unless it has one.
func fromTemplate(t *testing.T, opts Options) {
	t.Helper()
	if opts.Dir == InMemory {
		return
	}
	if entries, err := os.ReadDir(opts.Dir); err != nil || len(entries) > 0 {
		return
	}
	create, _ := templates.LoadOrStore(fmt.Sprint(opts.Layout, opts.Keys), sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "template-")
		if err != nil {
			return "", err
		}
		s, err := Open(context.Background(), Options{Dir: dir, Synchronous: opts.Synchronous, Layout: opts.Layout, Keys: opts.Keys})
		if err != nil {
			return "", err
		}
		return dir, s.Close()
	}))
	dir, err := create.(func() (string, error))()
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(opts.Dir, os.DirFS(dir)))
}

func removeTemplates(code int) {
	templates.Range(func(_, create any) bool {
		if dir, err := create.(func() (string, error))(); err == nil {
			_ = os.RemoveAll(dir)
		}
		return true
	})
	os.Exit(code)
}

func unlist(s *Store) func(first, last id.Thread) error {
	return func(first, last id.Thread) error {
		return s.write(context.Background(), func(tx *Tx) error {
			return errors.Join(tx.exec("DELETE FROM thread_metadata WHERE value GLOB '[[]*' AND thread_id BETWEEN ? AND ?", first, last),
				tx.exec("UPDATE threads SET listed = NULL WHERE thread_id BETWEEN ? AND ?", first, last))
		})
	}
}

func backend(t *testing.T, opts Options) storagetest.Backend {
	t.Helper()
	fromTemplate(t, opts)
	var touched storagetest.Touched
	opts.Touched = touched.Add
	s, err := Open(context.Background(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return storagetest.Backend{
		Assistants: s.Assistants(), Threads: s.Threads(), Runs: s.Runs(), Items: s.Items(), Keys: s, Sessions: s, Audit: s, Usage: s, Search: s, Feedback: s, Overhead: overhead(opts), Touched: touched.Take,
		Unlist: unlist(s),
		Reopen: func(t *testing.T) storagetest.Backend {
			t.Helper()
			require.NoError(t, s.Close())
			return backend(t, opts)
		},
	}
}

func TestScanSuite(t *testing.T) {
	t.Parallel()
	storagetest.RunScans(t, func(t *testing.T, budget time.Duration) storagetest.Backend {
		return backend(t, Options{Dir: t.TempDir(), Synchronous: "normal", SearchTimeout: budget})
	})
}

// overhead is what encryption adds to a value.
func overhead(opts Options) int64 {
	if opts.Keys == nil && opts.Handlers == nil {
		return 0
	}
	return seal.Overhead
}
