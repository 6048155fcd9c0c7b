package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/thread"
)

const crashDir = "UNDERSTUDY_CRASH_DIR"

// TestCrashChild is the process that TestKilledWhileWriting kills: it writes until it dies, and
// says what was answered.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("runs as the child of TestKilledWhileWriting")
	}
	s, err := Open(context.Background(), Options{Dir: dir})
	require.NoError(t, err)
	from, err := s.CountThreads(context.Background(), thread.Query{})
	require.NoError(t, err)
	done := make(chan int, 8)
	for w := range 8 {
		go func() {
			for n := from*1000 + w; ; n += 8 {
				if err := s.write(context.Background(), func(tx *Tx) error { return tx.InsertThread(numbered(n)) }); err != nil {
					t.Errorf("write %d: %v", n, err)
				}
				done <- n
			}
		}()
	}
	for n := range done {
		fmt.Printf("done %d\n", n)
	}
}

func numbered(n int) *thread.Thread {
	return &thread.Thread{ID: id.Thread(fmt.Sprintf("t%09d", n)), Status: thread.Idle, Metadata: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
}

// What was answered is there after kill -9, the database is whole, and the folder is free.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	var answered []int
	for range 3 {
		cmd := osexec.Command(os.Args[0], "-test.run=^TestCrashChild$", "-test.v")
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; n < 200 && lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "done "); ok {
				number, err := strconv.Atoi(text)
				require.NoError(t, err)
				answered = append(answered, number)
				n++
			}
		}
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() { // what it still said
			if text, ok := strings.CutPrefix(lines.Text(), "done "); ok {
				if number, err := strconv.Atoi(text); err == nil {
					answered = append(answered, number)
				}
			}
		}
		_ = cmd.Wait() // killed

		s, err := Open(context.Background(), Options{Dir: dir})
		require.NoError(t, err)
		for _, n := range answered {
			_, err := s.Thread(context.Background(), numbered(n).ID)
			require.NoError(t, err, "thread %d was answered", n)
		}
		requireWhole(t, s)
		require.NoError(t, s.Close())
	}
}

// requireWhole checks the file, and that the index of metadata says what the rows say.
func requireWhole(t *testing.T, s *Store) {
	t.Helper()
	require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
		var result string
		_, err := one(c, "PRAGMA integrity_check", func(st *sqlite.Stmt) error {
			result = st.ColumnText(0)
			return nil
		})
		require.Equal(t, "ok", result)
		require.NoError(t, err)
		var rows, terms int
		_, err = one(c, "SELECT (SELECT count(*) FROM threads), (SELECT count(*) FROM thread_metadata WHERE key = 'n')", func(st *sqlite.Stmt) error {
			rows, terms = st.ColumnInt(0), st.ColumnInt(1)
			return nil
		})
		require.Equal(t, rows, terms)
		return err
	}))
}
