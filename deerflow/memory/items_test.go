package memory_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/files"
	"understudy/deerflow/memory"
	"understudy/internal/fault"
	"understudy/internal/flock"
	"understudy/internal/logtest"
	"understudy/storage/postgres"
	"understudy/storage/postgres/migratedtest"
	"understudy/storage/sqlite"
	"understudy/store"
)

// server is what one server has of the memories in a store.
type server struct {
	*memory.Book
	items *store.Service
	now   func() time.Time
	log   *logtest.Buffer
	home  string
}

// inStore runs a test with two servers: on one database, which on SQLite they have open together.
func inStore(t *testing.T, test func(t *testing.T, a, b *server)) {
	t.Helper()
	serve := func(rows interface{ Items() store.Backend }, home string) *server {
		s := &server{now: time.Now, log: &logtest.Buffer{}, home: home}
		s.items = store.NewService(rows.Items(), func() time.Time { return s.now() })
		old := &memory.Folders{
			File: func(subject string) string {
				return filepath.Join(home, strings.ReplaceAll(subject, "\x00", "+"), "memory.json")
			},
			Facts: func(subject string) string {
				return filepath.Join(home, strings.ReplaceAll(subject, "\x00", "+"), "facts")
			},
		}
		in := &memory.Moved{Items: &memory.Items{Store: s.items, User: files.User}, From: old, Log: slog.New(slog.NewTextHandler(s.log, nil))}
		s.Book = &memory.Book{In: func(string) memory.Documents { return in }, Now: func() time.Time { return s.now() }}
		return s
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "normal"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, rows.Close()) })
		home := t.TempDir()
		test(t, serve(rows, home), serve(rows, home))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		where, home := migratedtest.Database(t), t.TempDir()
		var both [2]*server
		for i := range both {
			rows, err := postgres.Open(t.Context(), postgres.Options{URL: where, Connections: 3})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, rows.Close()) })
			both[i] = serve(rows, home)
		}
		test(t, both[0], both[1])
	})
}

func content(text string) memory.Edit { return memory.Edit{Content: &text} }

// Two servers share the memories, and of what many clients change at once on both nothing is lost.
func TestTwoServersChangeAMemory(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx := t.Context()
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				for i, s := range []*server{a, b, a, b} {
					_, err := s.Add(ctx, "ann", content(fmt.Sprintf("fact %d of client %d", i, n)))
					require.NoError(t, err)
				}
			})
		}
		all.Wait()
		for _, s := range []*server{a, b} {
			m, err := s.Read(ctx, "ann")
			require.NoError(t, err)
			require.Len(t, m.Facts, 32)
			require.Equal(t, 32, m.Revision)
		}
		_, err := b.Delete(ctx, "ann", "fact_00000000")
		require.True(t, fault.Is(err, fault.NotFound), err)

		// Each user and agent has its own, in a namespace of its own.
		_, err = a.Add(ctx, memory.Subject("ann", "cook"), content("cooks"))
		require.NoError(t, err)
		_, err = a.Add(ctx, "ann@example.com", content("writes"))
		require.NoError(t, err)
		for subject, want := range map[string]int{"ann": 32, memory.Subject("ann", "cook"): 1, "ann@example.com": 1, "ben": 0, memory.Subject("ben", "cook"): 0} {
			m, err := b.Read(ctx, subject)
			require.NoError(t, err)
			require.Len(t, m.Facts, want, subject)
		}
		item, err := b.items.Get(ctx, []string{"ann", "memory", "cook"}, "memory.json", nil)
		require.NoError(t, err)
		require.Contains(t, string(item.Value), "cooks")

		require.NoError(t, (&memory.Items{Store: b.items, User: files.User}).Forget(ctx, "ann"))
		for _, subject := range []string{"ann", memory.Subject("ann", "cook")} {
			m, err := a.Read(ctx, subject)
			require.NoError(t, err)
			require.Empty(t, m.Facts)
		}
		m, err := a.Read(ctx, "ann@example.com")
		require.NoError(t, err)
		require.Len(t, m.Facts, 1)
	})
}

// A memory that was in a file is imported when it is needed first, once, by one server, and the log says so. The file counts no more, also when all is forgotten.
func TestImportedMemory(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx := t.Context()
		write := func(name, text string) {
			at := filepath.Join(a.home, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
			require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		}
		write("ann/memory.json", `{"version":"1.0","lastUpdated":"2026-08-01T00:00:00Z","user":{"workContext":{"summary":"Builds ships","updatedAt":"x"}},"history":{},"facts":[{"id":"f1","content":"Drinks tea","category":"preference","confidence":0.9,"createdAt":"x","source":"t1"}]}`)
		write("ann/facts/ab/fact_2.md", "---\nid: fact_2\ncategory: goal\nconfidence: 1\n---\n\n# Sails\n\nSails.\n")
		var both sync.WaitGroup
		for _, s := range []*server{a, b} {
			both.Go(func() {
				_, err := s.Add(ctx, "ann", content("from "+fmt.Sprintf("%p", s)))
				require.NoError(t, err)
			})
		}
		both.Wait()
		m, err := a.Read(ctx, "ann")
		require.NoError(t, err)
		require.Len(t, m.Facts, 4)
		require.Equal(t, "Builds ships", m.User["workContext"].Summary)
		require.Equal(t, 1, strings.Count(a.log.String()+b.log.String(), "imported into the store"))
		require.Contains(t, a.log.String()+b.log.String(), "user=ann")
		_, err = b.Clear(ctx, "ann")
		require.NoError(t, err)
		m, err = a.Read(ctx, "ann")
		require.NoError(t, err)
		require.Empty(t, m.Facts)
		require.FileExists(t, filepath.Join(a.home, "ann/memory.json"))

		// Nor does it when the user deletes the item. Who was forgotten may bring another file.
		require.NoError(t, b.items.Delete(ctx, []string{"ann", "memory"}, "memory.json"))
		m, err = a.Read(ctx, "ann")
		require.NoError(t, err)
		require.Empty(t, m.Facts)
		require.NoError(t, (&memory.Items{Store: b.items, User: files.User}).Forget(ctx, "ann"))
		m, err = a.Read(ctx, "ann")
		require.NoError(t, err)
		require.Len(t, m.Facts, 2)

		// A file that is none is named, and can be replaced.
		write("ben/memory.json", `{"facts":"x"}`)
		for _, s := range []*server{a, b} {
			_, err = s.Read(ctx, "ben")
			require.True(t, fault.Is(err, fault.Conflict), err)
		}
	})
}

// What a user wrote into the store that is no memory is a mistake of that user, who can put another one in its place.
func TestOddItem(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx := t.Context()
		for _, odd := range []string{`{"facts":[{"content":1}]}`, `{"user":[]}`} {
			require.NoError(t, a.items.Put(ctx, store.Item{Namespace: []string{"ann", "memory"}, Key: "memory.json", Value: []byte(odd)}))
			_, err := a.Read(ctx, "ann")
			require.True(t, fault.Is(err, fault.Conflict), err)
			_, err = a.Add(ctx, "ann", content("x"))
			require.True(t, fault.Is(err, fault.Conflict), err)
			_, err = b.Clear(ctx, "ann")
			require.NoError(t, err)
			_, err = a.Read(ctx, "ann")
			require.NoError(t, err)
		}
	})
}

func (s *server) learner(ask func(ctx context.Context, prompt string) (string, error)) *memory.Learner {
	log := slog.New(slog.NewTextHandler(s.log, nil))
	return &memory.Learner{
		Book: s.Book, Ask: ask, Limits: func() memory.Limits { return memory.Limits{Confidence: 0.7, MaxFacts: 100} }, Log: log,
		Queue: &memory.ItemQueue{Store: s.items, User: files.User, Now: func() time.Time { return s.now() }, Log: log, Before: &memory.Folder{Dir: filepath.Join(s.home, "queue")}},
	}
}

func learns(text string) string {
	return fmt.Sprintf(`{"newFacts":[{"content":%q,"category":"preference","confidence":0.9,"scope":"user","durability":"durable","authority":"descriptive"}]}`, text)
}

// What waits is learned once, by either server; also what an earlier release left in files, and what a server that was killed had begun.
func TestServersShareAQueue(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx := t.Context()
		before := &memory.Learner{Book: a.Book, Queue: &memory.Folder{Dir: filepath.Join(a.home, "queue")}, Limits: func() memory.Limits { return memory.Limits{} }, Log: slog.New(slog.DiscardHandler)}
		require.NoError(t, before.Add(ctx, "ann", "t0", []memory.Turn{{User: true, Text: "zero"}}))
		reading := make(chan struct{}, 10)
		killed, kill := context.WithCancel(ctx)
		first := a.learner(func(ctx context.Context, _ string) (string, error) {
			reading <- struct{}{}
			<-ctx.Done() // it is killed meanwhile
			return "", ctx.Err()
		})
		require.NoError(t, first.Add(ctx, memory.Subject("ann", "cook"), "t1", []memory.Turn{{User: true, Text: "one"}}))
		ended := make(chan time.Duration, 1)
		go func() { ended <- first.Alone(killed) }()
		<-reading
		n := 0
		second := b.learner(func(_ context.Context, prompt string) (string, error) {
			n++
			return learns(fmt.Sprint("fact ", n)), nil
		})
		require.Equal(t, time.Second, second.Alone(ctx), "the other one works")
		require.Zero(t, n)
		b.now = func() time.Time { return time.Now().Add(2 * memory.Leased) } // as if the first had died long ago
		require.Equal(t, memory.Idle, second.Alone(ctx))
		require.Equal(t, 2, n)
		require.Equal(t, memory.Idle, second.Alone(ctx))
		require.Equal(t, 2, n, "each once")
		kill()
		<-ended
		m, err := a.Read(ctx, "ann")
		require.NoError(t, err)
		require.Len(t, m.Facts, 1)
		require.Equal(t, "t0", m.Facts[0].Source)
		m, err = a.Read(ctx, memory.Subject("ann", "cook"))
		require.NoError(t, err)
		require.Len(t, m.Facts, 1)

		require.NoError(t, second.Add(ctx, "ann", "t2", []memory.Turn{{User: true, Text: "two"}}))
		require.NoError(t, second.Queue.(*memory.ItemQueue).Forget(ctx, "ann"))
		require.Equal(t, memory.Idle, second.Alone(ctx))
		require.Equal(t, 2, n)
	})
}

// A user or an agent may be deleted while a model reads what was said: then its answer is not remembered, by either server. It is while the conversation waits.
func TestForgottenWhileAModelReads(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx := t.Context()
		items, cook := &memory.Items{Store: b.items, User: files.User}, memory.Subject("ann", "cook")
		other := b.learner(nil)
		queue := other.Queue.(*memory.ItemQueue)
		var meanwhile func()
		l := a.learner(func(context.Context, string) (string, error) { meanwhile(); return learns("Drinks tea"), nil })
		say := func(subject string) {
			require.NoError(t, other.Add(ctx, subject, "t", []memory.Turn{{User: true, Text: "hi"}}))
		}
		forget := func(subject string) {
			require.NoError(t, queue.Forget(ctx, subject))
			require.NoError(t, items.Forget(ctx, subject))
		}
		for name, c := range map[string]struct {
			known   bool
			happens func()
			want    int
		}{
			"nothing":                  {false, func() {}, 1},
			"the user is deleted":      {false, func() { forget("ann") }, 0},
			"a known user is deleted":  {true, func() { forget("ann") }, 0},
			"the agent is deleted":     {true, func() { forget(cook) }, 0},
			"the agent is made anew":   {true, func() { forget(cook); say(cook) }, 0},
			"another agent is deleted": {true, func() { forget(memory.Subject("ann", "gardener")) }, 2},
			"another user is deleted":  {false, func() { forget("ben") }, 1},
		} {
			forget("ann")
			if c.known {
				_, err := b.Add(ctx, cook, content("cooks"))
				require.NoError(t, err)
			}
			say(cook)
			meanwhile = c.happens
			l.Alone(ctx)
			m, err := b.Read(ctx, cook)
			require.NoError(t, err)
			require.Len(t, m.Facts, c.want, name)
		}
	})
}

// What is forgotten of an agent is nothing of its user or of another agent, in the memories and in the queue.
func TestForgetAnAgent(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx, l := t.Context(), a.learner(nil)
		cook := memory.Subject("ann", "cook")
		left := []string{"ann", memory.Subject("ann", "cook2"), memory.Subject("ben", "cook")}
		for _, subject := range append([]string{cook}, left...) {
			_, err := a.Add(ctx, subject, content("x"))
			require.NoError(t, err)
			require.NoError(t, l.Add(ctx, subject, "t", []memory.Turn{{User: true, Text: "hi"}}))
		}
		// What a graph keeps below the name of the agent is not the agent's.
		require.NoError(t, a.items.Put(ctx, store.Item{Namespace: []string{files.User("ann"), "memory", "cook", "recipes"}, Key: "k", Value: []byte(`{}`), TTL: -1}))
		require.NoError(t, a.items.Put(ctx, store.Item{Namespace: []string{files.User("ann"), "memory", "cook"}, Key: "k", Value: []byte(`{}`), TTL: -1}))
		queue := l.Queue.(*memory.ItemQueue)
		for _, f := range []func(context.Context, string) error{queue.Forget, (&memory.Items{Store: b.items, User: files.User}).Forget} {
			require.NoError(t, f(ctx, cook))
		}
		list, err := queue.List(ctx)
		require.NoError(t, err)
		require.Len(t, list, len(left))
		for subject, want := range map[string]int{cook: 0, left[0]: 1, left[1]: 1, left[2]: 1} {
			m, err := b.Read(ctx, subject)
			require.NoError(t, err)
			require.Len(t, m.Facts, want, subject)
		}
		kept, err := b.items.Search(ctx, store.Search{Prefix: []string{files.User("ann"), "memory", "cook"}, Limit: 10}, new(false))
		require.NoError(t, err)
		require.Len(t, kept, 2)
	})
}

// A file of the folder that cannot be moved keeps neither other files nor what waits in the store.
func TestOddFileInTheFolder(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx, l := t.Context(), a.learner(nil)
		queue := l.Queue.(*memory.ItemQueue)
		before := &memory.Learner{Book: b.Book, Queue: queue.Before}
		require.NoError(t, before.Add(ctx, "ann", "t", []memory.Turn{{User: true, Text: "one"}}))
		require.NoError(t, l.Add(ctx, "ben", "t", []memory.Turn{{User: true, Text: "two"}}))
		for name, text := range map[string]string{"a.json": "{", "z.json": "{}"} {
			require.NoError(t, os.WriteFile(filepath.Join(queue.Before.Dir, name), []byte(text), 0o600))
		}
		for range 3 {
			list, err := queue.List(ctx)
			require.NoError(t, err)
			require.Len(t, list, 2)
		}
		left, err := queue.Before.List(ctx)
		require.NoError(t, err)
		require.Len(t, left, 2, "nothing that cannot be read is deleted")
	})
}

// What an earlier release queues in its folder, also while servers are replaced, is moved, unless what waits in the store is newer or that release works on the folder.
func TestQueueInAFolderIsMoved(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, b *server) {
		ctx, l := t.Context(), a.learner(nil)
		queue := l.Queue.(*memory.ItemQueue)
		folder := queue.Before
		before := &memory.Learner{Book: b.Book, Queue: folder}
		at := time.Now().Add(-time.Hour)
		say := func(l *memory.Learner, text string) {
			at = at.Add(time.Second)
			a.now, b.now = func() time.Time { return at }, func() time.Time { return at }
			require.NoError(t, l.Add(ctx, "ann", "t", []memory.Turn{{User: true, Text: text}}))
		}
		waits := func(want string) {
			t.Helper()
			list, err := queue.List(ctx)
			require.NoError(t, err)
			require.Len(t, list, 1)
			d, err := queue.Load(ctx, list[0])
			require.NoError(t, err)
			require.Contains(t, string(d.Text), want)
		}
		in := func(want int) {
			t.Helper()
			list, err := folder.List(ctx)
			require.NoError(t, err)
			require.Len(t, list, want)
		}
		say(before, "one")
		waits("one")
		in(0)
		say(before, "two")
		say(l, "three")
		waits("three")
		in(0)
		say(before, "four")
		lock, err := os.OpenFile(filepath.Join(folder.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		require.NoError(t, flock.Try(lock, false))
		waits("three")
		in(1)
		require.NoError(t, lock.Close())
		waits("four")
		in(0)
	})
}

// What waits longest is learned first, however much waits.
func TestOldestOfALongQueue(t *testing.T) {
	t.Parallel()
	inStore(t, func(t *testing.T, a, _ *server) {
		ctx, first := t.Context(), ""
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		l := a.learner(func(_ context.Context, prompt string) (string, error) {
			first = prompt
			cancel() // the first is enough
			return "", context.Canceled
		})
		queue := l.Queue.(*memory.ItemQueue)
		at := time.Now().Add(-time.Hour)
		a.now = func() time.Time { return at }
		require.NoError(t, l.Add(ctx, "ann", "oldest", []memory.Turn{{User: true, Text: "the oldest"}}))
		at = at.Add(time.Minute)
		for n := range 1001 {
			require.NoError(t, queue.Put(ctx, "ben", fmt.Sprint(n), []byte(`{"User":"ben","Thread":"t","Turns":[{"user":true,"text":"new"}]}`)))
		}
		at = at.Add(time.Minute)
		l.Alone(ctx)
		require.Contains(t, first, "the oldest")
	})
}
