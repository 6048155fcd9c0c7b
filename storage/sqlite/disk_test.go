//go:build linux

package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/diskspace"
	"understudy/internal/fault"
	"understudy/internal/logtest"
	"understudy/internal/metricstest"
	"understudy/internal/seedtest"
	"understudy/thread"
)

// A write that does not fit is refused alone: the others go on at once.
func TestAWriteLargerThanTheDisk(t *testing.T) {
	t.Parallel()
	dir := ownDisk(t, "size=20m")
	ctx := t.Context()
	s, err := Open(ctx, Options{Dir: dir, Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for n, size := range []int{30 << 20, 11 << 20} { // longer than the disk; room for it in the log, but not in the database then
		err = fullThread(ctx, s, "large", size)
		require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
		require.ErrorContains(t, err, "disk is full")
		require.NoError(t, s.Ping(ctx))
		require.NoError(t, fullThread(ctx, s, id.Thread(fmt.Sprint("small", n)), 1<<20))
	}
	require.NoError(t, fullThread(ctx, s, "fits", 2<<20))
}

// A disk whose files are all taken has the reserve's again, since its file stays.
func TestDeletingOnADiskWithoutInodes(t *testing.T) {
	t.Parallel()
	dir := ownDisk(t, "size=20m,nr_inodes=20")
	ctx := t.Context()
	s, err := Open(ctx, Options{Dir: dir, Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	takeInodes := func() {
		for n := 0; ; n++ {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("file", n)), os.O_CREATE, 0o600)
			if err != nil {
				require.ErrorIs(t, err, syscall.ENOSPC)
				return
			}
			require.NoError(t, f.Close())
		}
	}
	takeInodes()
	saved := fillDisk(t, s, "t", 64<<10, nil)
	require.NotEmpty(t, saved)
	takeInodes()
	requireThreads(t, s, saved)
	for _, name := range saved {
		require.NoError(t, deleteThread(ctx, s, name))
	}
	require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, fullThread(ctx, s, "again", 64<<10))
}

// ownDisk mounts a small disk in memory and returns a folder on it.
func ownDisk(t *testing.T, options string) string {
	t.Helper()
	dir := mkdir(t, filepath.Join(t.TempDir(), "data"))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("SKIPPED: no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

// Deleting works on a disk that the database has filled by itself, however large its writes are
// and whatever is read meanwhile. After that all is as before, and what was acknowledged is there
// until it is deleted.
func TestDeletingOnAFullDisk(t *testing.T) {
	t.Parallel()
	for n, size := range []int{4 << 10, 64 << 10, 1 << 20, 5 << 20} {
		for _, held := range []bool{false, true} {
			if !seedtest.InFull() && held != (n%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%d/held=%t", size, held), func(t *testing.T) {
				t.Parallel()
				testFillingADisk(t, size, held)
			})
		}
	}
}

// testFillingADisk fills a disk with threads of a size, and deletes them. With held a reader keeps
// the state before them.
func testFillingADisk(t *testing.T, size int, held bool) {
	room := "size=24m" // which has a reserve of 4 MiB
	switch size {
	case 4 << 10:
		room = "size=6m"
	case 64 << 10:
		room = "size=40m"
	}
	dir := ownDisk(t, room)
	ctx := t.Context()
	s, err := Open(ctx, Options{Dir: dir, Synchronous: "normal", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, fullThread(ctx, s, "first", 1))

	readers, written := &sync.WaitGroup{}, make(chan struct{}, 3)
	t.Cleanup(readers.Wait)
	reading, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-written:
				case <-reading.Done():
					return
				}
				err := s.snapshot(reading, func(c *sqlite.Conn) error {
					return query(c, "SELECT count(*), max(updated_at) FROM threads", nil)
				})
				if err != nil && reading.Err() == nil {
					t.Error("read:", err)
					return
				}
			}
		})
	}
	for round := range 2 {
		letGo := hold(t, s, held)
		saved := fillDisk(t, s, fmt.Sprint("r", round), size, written)
		if !held { // what was undone stays in the log as long as the reader
			require.NotEmpty(t, saved)
		}
		requireThreads(t, s, append(saved, "first"))
		del := func(names []id.Thread) {
			for n, name := range names {
				require.NoError(t, deleteThread(ctx, s, name), "%d of %d", n, len(saved))
				signal(written)
			}
		}
		few := min(len(saved), 4) // as many as half of the smallest reserve here is good for
		del(saved[:few])
		letGo()
		del(saved[few:])
		requireThreads(t, s, []id.Thread{"first"})
		require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, 20*time.Second, 10*time.Millisecond)
		info, err := os.Stat(filepath.Join(dir, reserveName))
		require.NoError(t, err)
		require.GreaterOrEqual(t, info.Size(), s.disk.size)
		again := id.Thread(fmt.Sprint("again", round))
		require.NoError(t, fullThread(ctx, s, again, size))
		require.NoError(t, deleteThread(ctx, s, again))
		t.Logf("round %d: %d threads saved", round, len(saved))
	}
	stop()
	readers.Wait()
	require.NoError(t, s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "PRAGMA integrity_check", func(st *sqlite.Stmt) error {
			require.Equal(t, "ok", st.ColumnText(0))
			return nil
		})
		return err
	}))
}

// Deleting works on a disk that another program fills again and again, in whatever order that,
// refused writes and deletes come: what the reserve does not need at the moment is never there for
// others to take.
func TestDeletingOnADiskThatAnotherProgramFills(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			testFillingWithAnother(t, rand.New(rand.NewPCG(seed, 0)), false) //nolint:gosec // a test
		})
		t.Run(fmt.Sprintf("%d/written", seed), func(t *testing.T) {
			t.Parallel()
			testFillingWithAnother(t, rand.New(rand.NewPCG(seed, 1)), true) //nolint:gosec // a test
		})
	}
}

// testFillingWithAnother does what the generator says and then deletes all. With written the file
// system cannot give room that is not written.
func testFillingWithAnother(t *testing.T, r *rand.Rand, written bool) {
	dir := ownDisk(t, "size=16m")
	ctx := t.Context()
	var s *Store
	open := func() {
		var err error
		s, err = Open(ctx, Options{Dir: dir, Synchronous: "normal", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		require.NoError(t, err)
		if written {
			require.NoError(t, s.write(diskspace.WithReserve(ctx), func(*Tx) error { // on the writer's goroutine
				s.disk.extend = func(string, int64) error { return errors.ErrUnsupported }
				s.disk.allocate = func(path string, size int64) error {
					return change(path, func(f *os.File) error { return fill(f, size) })
				}
				return nil
			}))
		}
	}
	open()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	foreign := filepath.Join(dir, "foreign")
	fillUp := func() {
		f, err := os.OpenFile(foreign, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		for page := make([]byte, 4096); err == nil; {
			_, err = f.Write(page)
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NoError(t, f.Close())
	}
	var saved []id.Thread
	save := func(n, size int) error {
		name := id.Thread(fmt.Sprint("t", n))
		err := fullThread(ctx, s, name, size)
		if err == nil {
			saved = append(saved, name)
		} else {
			require.ErrorContains(t, err, "disk is full")
		}
		return err
	}
	for n := range 40 {
		require.NoError(t, save(n, 20<<10))
	}
	sizes := 16
	if written {
		sizes = 11 // the reserve does not grow with what is written
	}
	var order []string
	del := func() {
		if len(saved) == 0 {
			return
		}
		n := r.IntN(len(saved))
		require.NoError(t, deleteThread(ctx, s, saved[n]), "%v", order)
		saved = slices.Delete(saved, n, n+1)
	}
	for n := range 40 {
		switch k := r.IntN(11); {
		case k == 10:
			order = append(order, "restart")
			require.NoError(t, s.Close())
			if r.IntN(2) == 0 {
				fillUp()
			}
			was, size := reserved(t, dir), s.disk.size
			open()
			if !s.disk.full.Load() { // else what was used comes back with the room
				require.GreaterOrEqual(t, reserved(t, dir), min(was, s.disk.size), "%v", order)
				require.GreaterOrEqual(t, s.disk.size, size, "%v", order)
			}
		case k < 3:
			order = append(order, "fill")
			fillUp()
		case k < 4:
			order = append(order, "free")
			if err := os.Truncate(foreign, 0); err != nil {
				require.ErrorIs(t, err, os.ErrNotExist)
			}
		case k < 8:
			size := 1 << (6 + r.IntN(sizes))
			order = append(order, fmt.Sprint("write ", size, " ", save(100+n, size) == nil))
		default:
			order = append(order, "delete")
			del()
		}
	}
	fillUp()
	_ = save(1000, 64<<10)
	fillUp()
	requireThreads(t, s, saved)
	for len(saved) > 0 {
		order = append(order, "delete")
		del()
		if r.IntN(4) == 0 {
			fillUp()
		}
	}
	require.NoError(t, os.Remove(foreign))
	require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, save(1001, 64<<10))
	requireReserve(t, s, dir)
}

func deleteThread(ctx context.Context, s *Store, name id.Thread) error {
	return s.write(diskspace.WithReserve(ctx), func(tx *Tx) error { return tx.DeleteThread(name) })
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hold keeps a state of the database until the returned function is called.
func hold(t *testing.T, s *Store, held bool) (letGo func()) {
	t.Helper()
	if !held {
		return func() {}
	}
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.snapshot(t.Context(), func(c *sqlite.Conn) error {
			err := query(c, "SELECT count(*) FROM threads", nil)
			close(begun)
			<-end
			return err
		})
	}()
	<-begun
	letGo = sync.OnceFunc(func() { close(end); require.NoError(t, <-done) })
	t.Cleanup(letGo)
	return letGo
}

// fillDisk saves threads on several goroutines until none of a size fits, and returns the
// acknowledged ones.
func fillDisk(t *testing.T, s *Store, prefix string, size int, written chan<- struct{}) (saved []id.Thread) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range min(16, max(2, 24<<20/size)) {
		wg.Go(func() {
			for n := 0; ; n++ {
				name := id.Thread(fmt.Sprint(prefix, "-", w, "-", n))
				if err := fullThread(t.Context(), s, name, size); err != nil {
					if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "disk is full") {
						t.Error("write:", err)
					}
					return
				}
				signal(written)
				mu.Lock()
				saved = append(saved, name)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return saved
}

// requireReserve requires what a write that was refused has to leave of the reserve.
func requireReserve(t *testing.T, s *Store, dir string) {
	t.Helper()
	require.GreaterOrEqual(t, reserved(t, dir), s.disk.size/2)
}

// reserved returns the size of the reserve.
func reserved(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, reserveName))
	require.NoError(t, err)
	return info.Size()
}

// A reserve that other programs surround does not become smaller with each restart, whatever is deleted in between.
func TestRestartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := ownDisk(t, "size=60m")
	fillUp := func() {
		f, err := os.OpenFile(filepath.Join(dir, "foreign"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		for page := make([]byte, 1024); err == nil; {
			_, err = f.Write(page)
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NoError(t, f.Close())
	}
	var saved []id.Thread
	var first int64
	for round := range 10 {
		s, err := Open(t.Context(), Options{Dir: dir, Synchronous: "normal", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		require.NoError(t, err)
		if round == 0 {
			for n := range 40 {
				saved = append(saved, id.Thread(fmt.Sprint("t", n)))
				require.NoError(t, fullThread(t.Context(), s, saved[n], 20<<10))
			}
			first = s.disk.size
		}
		require.Equal(t, first, s.disk.size, "round %d", round)
		fillUp()
		if round%2 == 1 {
			require.Error(t, fullThread(t.Context(), s, "more", 64<<10))
			fillUp()
		}
		for range 3 {
			require.NoError(t, deleteThread(t.Context(), s, saved[0]))
			saved = saved[1:]
			fillUp()
		}
		require.GreaterOrEqual(t, reserved(t, dir), first*9/10, "round %d", round)
		requireThreads(t, s, saved)
		require.NoError(t, s.Close())
		require.GreaterOrEqual(t, reserved(t, dir), first-64<<10, "round %d", round)
		fillUp()
	}
}

// A reserve that has grown with the log says nothing of the disk: a server that starts on a disk that
// is full meanwhile wants no more than the one before, and recovers when there is as much room as then.
func TestRestartAfterLargeWritesOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := ownDisk(t, "size=16m")
	open := func() *Store {
		s, err := Open(t.Context(), Options{Dir: dir, Synchronous: "normal", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		require.NoError(t, err)
		return s
	}
	s := open()
	size := s.disk.size
	for n := range 2 {
		require.NoError(t, fullThread(t.Context(), s, id.Thread(fmt.Sprint("t", n)), 2<<20))
	}
	require.NoError(t, s.Close())
	for _, held := range []int64{reserved(t, dir), 7 << 20} { // as a folded log leaves it, or one that was not
		require.NoError(t, extend(filepath.Join(dir, reserveName), held))
		foreign := filepath.Join(dir, "foreign")
		f, err := os.Create(foreign) //nolint:gosec // a folder of the test
		require.NoError(t, err)
		require.ErrorIs(t, fill(f, 16<<20), syscall.ENOSPC)
		require.NoError(t, f.Close())
		s = open()
		require.Equal(t, size, s.disk.size)
		require.NoError(t, os.Remove(foreign))
		require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil }, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, s.Close())
	}
}

// requireThreads compares the threads that there are.
func requireThreads(t *testing.T, s *Store, names []id.Thread) {
	t.Helper()
	var got []id.Thread
	require.NoError(t, s.read(t.Context(), func(c *sqlite.Conn) error {
		return query(c, "SELECT thread_id FROM threads", func(st *sqlite.Stmt) error {
			got = append(got, id.Thread(st.ColumnText(0)))
			return nil
		})
	}))
	want := slices.Sorted(slices.Values(names))
	slices.Sort(got)
	require.Equal(t, want, got)
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

// The same without the right to mount a disk: SQLite's own limit stands in for its end.
func TestDeletingInAFullDatabase(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir, registry := t.TempDir(), prometheus.NewRegistry()
	s, err := Open(ctx, Options{Dir: dir, Registry: registry})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	writable := func() float64 { return metricstest.Value(t, registry, "understudy_database_writable") }
	require.NoError(t, fullThread(ctx, s, "old", 100))
	require.Equal(t, 1.0, writable())
	require.NoError(t, s.write(ctx, func(tx *Tx) error { // on the writer's goroutine
		s.disk.allocate = func(string, int64) error { return syscall.ENOSPC }
		return tx.exec("PRAGMA max_page_count = 10")
	}))
	err = fullThread(ctx, s, "large", 4<<20)
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	requireReserve(t, s, dir)
	require.ErrorIs(t, s.Ping(ctx), ErrFull)
	require.Equal(t, 0.0, writable())
	require.ErrorIs(t, fullThread(ctx, s, "small", 1), ErrFull)
	require.NoError(t, s.write(diskspace.WithReserve(ctx), func(tx *Tx) error { return tx.DeleteThread("old") }))
	require.NoError(t, s.write(diskspace.WithReserve(ctx), func(tx *Tx) error {
		s.disk.allocate = allocate
		return tx.exec("PRAGMA max_page_count = 1000000")
	}))
	require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1.0, writable())
	require.FileExists(t, filepath.Join(dir, reserveName))
	require.NoError(t, fullThread(ctx, s, "large", 4<<20))
}

// A write into a file that is no longer there is not acknowledged.
func TestFolderIsRemoved(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"folder":   os.RemoveAll,
		"database": func(dir string) error { return os.Remove(filepath.Join(dir, fileName)) },
		"log":      func(dir string) error { return os.Remove(filepath.Join(dir, fileName+"-wal")) },
		"replaced": func(dir string) error {
			other := filepath.Join(dir, "other")
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				return err
			}
			return os.Rename(other, filepath.Join(dir, fileName))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			var log bytes.Buffer
			s, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			require.NoError(t, fullThread(t.Context(), s, "a", 1))
			require.NoError(t, s.Ping(t.Context()))
			require.NoError(t, remove(dir))
			require.ErrorIs(t, fullThread(t.Context(), s, "b", 1), errGone)
			require.ErrorIs(t, fullThread(t.Context(), s, "c", 1), errGone)
			require.ErrorIs(t, s.Ping(t.Context()), errGone)
			require.True(t, fault.Is(errGone, fault.Unavailable))
			_ = s.Close() // it may say that its files are not there
			require.Equal(t, 1, strings.Count(log.String(), "removed or replaced"), log.String())
		})
	}
}

// The log says that the files are gone before a write or a check finds it.
func TestFolderIsRemovedFromIdleServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	lines := make(logLines, 100)
	s, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.Less(t, presence, 3*time.Second)
	require.NoError(t, os.RemoveAll(dir))
	for {
		select {
		case line := <-lines:
			if strings.Contains(line, "removed or replaced") {
				require.Contains(t, line, "fix=")
				return
			}
		case <-time.After(time.Minute):
			t.Fatal("the log does not say that the files are gone")
		}
	}
}

// logLines passes on what is logged, line by line.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Only its owner reads a data folder, also one that others could read, and what is copied out of it.
func TestModes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "data")
	for range 2 {
		s, err := Open(t.Context(), Options{Dir: dir})
		require.NoError(t, err)
		require.NoError(t, fullThread(t.Context(), s, id.NewThread(), 1))
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(files), 4)
		for _, f := range files {
			info, err := f.Info()
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), f.Name())
		}
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		require.NoError(t, s.Close())
		require.NoError(t, os.Chmod(filepath.Join(dir, fileName), 0o644))
		require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // that is the test
	}
}

// What a killed server kept in memory goes with the start of the next. Folders that are held, or
// that are something else, stay.
func TestMemoryOfKilledServers(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	folder := func(name string, marked, locked bool) string {
		dir := mkdir(t, filepath.Join(place, name))
		if marked {
			require.NoError(t, os.WriteFile(filepath.Join(dir, memoryMark), nil, 0o600))
		}
		if locked {
			require.NoError(t, os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
		}
		return dir
	}
	killed := folder(memoryPrefix+"1", true, true)
	held := folder(memoryPrefix+"2", true, true)
	lock, err := lockDir(held)
	require.NoError(t, err)
	defer lock.Close()
	young := folder(memoryPrefix+"3", true, false)
	old := folder(memoryPrefix+"4", true, false)
	require.NoError(t, os.Chtimes(old, time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)))
	unmarked := folder(memoryPrefix+"5", false, true)
	other := folder("understudy-data", true, true)
	sweepMemory(place)
	require.NoDirExists(t, killed)
	require.NoDirExists(t, old)
	for _, dir := range []string{held, young, unmarked, other} {
		require.DirExists(t, dir)
	}
	if runtime.GOOS == "linux" {
		dir, err := memoryDir()
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(dir))
	}
}

// A lasting failure to fold the log is logged once a minute, and so is its end.
func TestFoldFailuresAreThrottled(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := &folder{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 100 {
		f.note(sqlite.ResultIOErr.ToError())
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	f.note(nil)
	f.note(nil)
	require.Equal(t, 1, strings.Count(log.String(), "level=INFO"), log.String())
	f.note(sqlite.ResultIOErr.ToError())
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), log.String())
}

func TestOutOfMemoryIsUnavailable(t *testing.T) {
	t.Parallel()
	require.True(t, fault.Is(classify(sqlite.ResultNoMem.ToError()), fault.Unavailable))
	require.True(t, fault.Is(classify(sqlite.ResultTooBig.ToError()), fault.TooLarge))
}

// Servers that start and end at the same time on data folders in memory, each of which removes
// what killed ones left, leave each other's folders alone.
func TestStartingInMemoryTogether(t *testing.T) {
	t.Parallel()
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			for range 200 {
				dir, err := memoryDir()
				if err != nil {
					return err
				}
				lock, err := lockDir(dir)
				if err != nil {
					return err
				}
				if _, err := os.Stat(filepath.Join(dir, memoryMark)); err != nil {
					return fmt.Errorf("removed while it was in use: %w", err)
				}
				if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

// A full disk fails writes with an error that says so, loses nothing that was answered, and is
// over when there is room. It needs the right to mount a small file system, and is skipped
// without.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("SKIPPED: no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 2<<20), 0o600))
	s, err := Open(context.Background(), Options{Dir: filepath.Join(dir, "data")})
	require.NoError(t, err)

	ctx := context.Background()
	large := func(n int) error {
		th := numbered(n)
		th.Config = []byte(`"` + strings.Repeat("x", 20_000) + `"`)
		return s.write(ctx, func(tx *Tx) error { return tx.InsertThread(th) })
	}
	answered := 0
	for {
		if err = large(answered); err != nil {
			break
		}
		answered++
	}
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.ErrorContains(t, err, "disk is full")
	require.Positive(t, answered)
	require.Error(t, large(answered)) // still
	for n := range answered {
		_, err := s.Thread(ctx, numbered(n).ID)
		require.NoError(t, err)
	}

	require.NoError(t, os.Remove(ballast))
	require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, 20*time.Second, 10*time.Millisecond)
	for range 10 {
		require.NoError(t, large(answered))
		answered++
	}
	require.NoError(t, s.Close())
	s, err = Open(ctx, Options{Dir: filepath.Join(dir, "data")})
	require.NoError(t, err)
	n, err := s.CountThreads(ctx, thread.Query{})
	require.NoError(t, err)
	require.Equal(t, answered, n)
	requireWhole(t, s)
	require.NoError(t, s.Close())
}

// A start on a full disk says what to do, as a server does whose disk becomes full.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	log := &logtest.Buffer{}
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error { // on the writer's goroutine
		s.disk.allocate = func(string, int64) error { return syscall.ENOSPC }
		s.disk.begin(tx.conn)
		return nil
	}))
	require.Contains(t, log.String(), "the disk is full: only deleting works until there is room")
	require.Regexp(t, `fix="free \d+ bytes on the disk of `+dir+`;`, log.String())
}
