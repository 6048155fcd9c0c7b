package mirror_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is a storage of threads, in memory.
type log struct {
	mu      sync.Mutex
	created map[id.Thread]time.Time
	events  map[id.Thread][]*eventstore.Event
	offsets map[id.Thread]eventstore.Offset
	changes *eventstore.Changes
	fail    error // of PutOffsets
	clock   int64
}

func newLog() *log {
	return &log{
		created: map[id.Thread]time.Time{}, events: map[id.Thread][]*eventstore.Event{}, offsets: map[id.Thread]eventstore.Offset{},
		changes: eventstore.NewChanges(),
	}
}

func (l *log) Events(_ context.Context, t id.Thread, after eventstore.Seq, limit int) ([]*eventstore.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.events[t][min(int(after), len(l.events[t])):]
	return all[:min(limit, len(all))], nil
}

func (l *log) Followed(_ context.Context, _ string, after id.Thread, limit int) (threads []id.Thread, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	best := func(t id.Thread) { // the smallest above after is enough: pages may be short
		if t > after && (len(threads) == 0 || t < threads[0]) {
			threads = []id.Thread{t}
		}
	}
	for t := range l.created {
		best(t)
	}
	for t := range l.offsets {
		best(t)
	}
	return threads, nil
}

func (l *log) Offset(_ context.Context, _ string, t id.Thread) (*eventstore.Offset, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o, ok := l.offsets[t]; ok {
		return &o, l.created[t], nil
	}
	return nil, l.created[t], nil
}

func (l *log) PutOffsets(_ context.Context, _ string, offsets []eventstore.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	for _, o := range offsets {
		if l.offsets[o.Thread] = o; o.Created.IsZero() {
			delete(l.offsets, o.Thread)
		}
	}
	return nil
}

// add appends events that say something, and makes the thread if need be.
func (l *log) add(t id.Thread, texts ...string) {
	l.mu.Lock()
	if l.created[t].IsZero() {
		l.clock++
		l.created[t] = time.UnixMicro(l.clock)
	}
	for _, text := range texts {
		content, _ := json.Marshal(text)
		l.events[t] = append(l.events[t], &eventstore.Event{Thread: t, Seq: eventstore.Seq(len(l.events[t]) + 1), Content: content})
	}
	l.mu.Unlock()
	l.changes.Add([]id.Thread{t})
}

func (l *log) remove(t id.Thread) {
	l.mu.Lock()
	delete(l.created, t)
	delete(l.events, t)
	l.mu.Unlock()
	l.changes.Add([]id.Thread{t})
}

func encode(dst []byte, e *eventstore.Event) []byte {
	dst = strconv.AppendInt(append(dst, `{"seq":`...), int64(e.Seq), 10)
	return append(append(append(dst, ",\n\"content\":"...), e.Content...), '}')
}

// content is what the file of a thread has to hold.
func (l *log) content(t id.Thread) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b []byte
	for _, e := range l.events[t] {
		b = append(bytes.ReplaceAll(encode(b, e), []byte(",\n"), []byte(", ")), '\n')
	}
	return string(b)
}

// once runs a mirror until it has nothing left to do.
func (l *log) once(t *testing.T, dir string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l.changes = eventstore.NewChanges() // its channel has to be one of the bubble
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- mirror.New(mirror.Options{Dir: dir, Store: l, Changes: l.changes, Encode: encode}).Run(ctx)
		}()
		synctest.Wait()
		cancel()
		require.NoError(t, <-ended)
	})
	l.changes = eventstore.NewChanges()
}

func read(t *testing.T, dir string, thread id.Thread) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, string(thread)+".jsonl"))
	require.NoError(t, err)
	return string(b)
}

func TestFilesFollowTheLog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	l := newLog()
	for _, thread := range []id.Thread{"one", "two"} {
		l.add(thread, "x", "ü\n\u2028", "")
	}
	synctest.Test(t, func(t *testing.T) {
		l.changes = eventstore.NewChanges()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- mirror.New(mirror.Options{Dir: dir, Store: l, Changes: l.changes, Encode: encode}).Run(ctx)
		}()
		synctest.Wait()
		for _, thread := range []id.Thread{"one", "two"} {
			require.Equal(t, l.content(thread), read(t, dir, thread), "what was there before")
		}
		l.add("one", "y")
		l.add("three", "z")
		for i := range 2500 { // more than one round writes
			l.add("long", fmt.Sprint("row ", i))
		}
		synctest.Wait()
		for _, thread := range []id.Thread{"one", "two", "three", "long"} {
			require.Equal(t, l.content(thread), read(t, dir, thread))
		}
		l.remove("two")
		synctest.Wait()
		require.NoFileExists(t, filepath.Join(dir, "two.jsonl"))
		l.remove("one")
		l.add("one", "of another thread")
		l.add("../e%vil/ü", "inside")
		l.add("", "nameless")
		l.add("empty")
		synctest.Wait()
		require.Equal(t, l.content("one"), read(t, dir, "one"))
		require.Equal(t, l.content("../e%vil/ü"), read(t, dir, "%2E%2E%2Fe%25vil%2F%C3%BC"))
		require.NoFileExists(t, filepath.Join(dir, "empty.jsonl"), "nothing happened there")
		l.add("three", "the last word")
		cancel()
		require.NoError(t, <-ended)
		require.Equal(t, l.content("three"), read(t, dir, "three"), "the end waits for what was written")
	})
	require.Len(t, l.offsets, 5)
}

// Whatever a crash or a person left in the folder: afterwards files say what the log says, each row once.
func TestFilesAreMended(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 40_000) // longer than what is read at once
	texts := []string{"a", long, "c", "d", long, "f"}
	tests := []struct {
		name string
		harm func(t *testing.T, l *log, file string)
	}{
		{"nothing", func(*testing.T, *log, string) {}},
		{"torn last line", func(t *testing.T, l *log, file string) { truncate(t, file, -3) }},
		{"line break missing", func(t *testing.T, l *log, file string) { truncate(t, file, -1) }},
		{"two lines missing", func(t *testing.T, l *log, file string) { truncate(t, file, -len(long)-30) }},
		{"half of the first line", func(t *testing.T, l *log, file string) { require.NoError(t, os.Truncate(file, 5)) }},
		{"empty", func(t *testing.T, l *log, file string) { require.NoError(t, os.Truncate(file, 0)) }},
		{"no file", func(t *testing.T, l *log, file string) { require.NoError(t, os.Remove(file)) }},
		{"rows that were not noted", func(t *testing.T, l *log, file string) {
			o := l.offsets["t"]
			o.Seq, o.Position = 2, int64(len(lines(t, file)[0])+len(lines(t, file)[1]))
			l.offsets["t"] = o
		}},
		{"nothing noted", func(t *testing.T, l *log, file string) { delete(l.offsets, "t") }},
		{"noted too far", func(t *testing.T, l *log, file string) {
			require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines(t, file)[:3], "")+`{"seq":4,"con`), 0o600))
		}},
		{"zeros where rows were", func(t *testing.T, l *log, file string) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			clear(b[len(b)-100:])
			require.NoError(t, os.WriteFile(file, b, 0o600))
		}},
		{"something written behind it", func(t *testing.T, l *log, file string) {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("a note\n")
			require.NoError(t, errors.Join(err, f.Close()))
		}},
		{"another text", func(t *testing.T, l *log, file string) {
			require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("lorem ipsum\n"), 50_000), 0o600))
		}},
		{"rows of another log", func(t *testing.T, l *log, file string) {
			require.NoError(t, os.WriteFile(file, []byte("{\"seq\":1,\"x\":1}\n{\"seq\":99,\"x\":2}\n"), 0o600))
		}},
		{"the thread is gone", func(t *testing.T, l *log, file string) { delete(l.created, "t"); delete(l.events, "t") }},
		{"another thread of its id", func(t *testing.T, l *log, file string) {
			l.created["t"] = time.Now()
			l.events["t"] = l.events["t"][2:3]
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := newLog()
			l.add("t", texts...)
			l.once(t, dir)
			require.Equal(t, l.content("t"), read(t, dir, "t"))
			tt.harm(t, l, filepath.Join(dir, "t.jsonl"))
			if len(l.events["t"]) == 1 {
				l.events["t"][0].Seq = 1
			}
			for range 2 {
				l.once(t, dir)
				if l.created["t"].IsZero() {
					require.NoFileExists(t, filepath.Join(dir, "t.jsonl"))
					require.Empty(t, l.offsets)
					return
				}
				require.True(t, l.content("t") == read(t, dir, "t")) // too long to be shown
				require.Equal(t, eventstore.Seq(len(l.events["t"])), l.offsets["t"].Seq)
				l.add("t", "more")
			}
		})
	}
}

func truncate(t *testing.T, file string, by int) {
	t.Helper()
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, info.Size()+int64(by)))
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.SplitAfter(string(b), "\n")
}

// A file cut anywhere is whole again.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLog()
	l.add("t", "a", "bc", "", "def")
	l.once(t, dir)
	whole := l.content("t")
	file := filepath.Join(dir, "t.jsonl")
	rnd := rand.New(rand.NewPCG(1, 2))
	for cut := range len(whole) {
		require.NoError(t, os.Truncate(file, int64(cut)))
		if rnd.IntN(2) == 0 {
			o := l.offsets["t"]
			at := rnd.IntN(4)
			o.Seq, o.Position = eventstore.Seq(at), int64(len(strings.Join(strings.SplitAfter(whole, "\n")[:at], "")))
			l.offsets["t"] = o
		}
		l.once(t, dir)
		require.Equal(t, whole, read(t, dir, "t"), cut)
	}
}

// What fails is tried again, and rows that were written meanwhile are not written twice.
func TestFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "d")
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // a file where the folder has to be
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		l.fail = errors.New("disk full")
		l.add("t", "a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- mirror.New(mirror.Options{Dir: dir, Store: l, Changes: l.changes, Encode: encode}).Run(ctx)
		}()
		synctest.Wait()
		require.NoError(t, os.Remove(dir))
		time.Sleep(10 * time.Second)
		l.add("t", "b")
		time.Sleep(2 * time.Minute)
		require.Equal(t, l.content("t"), read(t, dir, "t"))
		l.mu.Lock()
		require.Empty(t, l.offsets)
		l.fail = nil
		l.mu.Unlock()
		time.Sleep(2 * time.Minute)
		require.Equal(t, l.content("t"), read(t, dir, "t"))
		cancel()
		require.NoError(t, <-ended)
		require.Equal(t, eventstore.Seq(2), l.offsets["t"].Seq)
	})
}

// More changes than are remembered one by one are found all the same.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	changes := eventstore.NewChanges()
	var all []id.Thread
	for n := range 10_001 {
		all = append(all, id.Thread(fmt.Sprint(n)))
	}
	changes.Add(all[:10_000])
	threads, missed := changes.Take(20_000)
	require.Len(t, threads, 10_000)
	require.False(t, missed)
	changes.Add(all)
	changes.Add(all[:1])
	threads, missed = changes.Take(5)
	require.Len(t, threads, 1)
	require.True(t, missed)
	_, missed = changes.Take(5)
	require.False(t, missed)
}
