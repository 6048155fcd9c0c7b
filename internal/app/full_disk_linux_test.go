package app

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/storage/sqlite"
)

// fullDisk mounts a small file system on the data folder of a child. fill fills it until the server at url, if there is one, saves nothing.
func fullDisk(t *testing.T, dir string) (fill func(url string), makeRoom func()) {
	t.Helper()
	data := filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=16m"); err != nil {
		t.Skip("SKIPPED: a file system of a given size needs root: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(data, syscall.MNT_DETACH)) })
	rest := filepath.Join(data, "rest")
	fillUp := func() {
		require.ErrorIs(t, os.WriteFile(rest, make([]byte, 16<<20), 0o600), syscall.ENOSPC)
	}
	fill = func(url string) {
		for fillUp(); ; fillUp() {
			answer := answerOf(url+"/threads", `{"metadata":{"padding":"`+strings.Repeat("x", 1<<19)+`"}}`)
			if strings.Contains(answer, "disk is full") {
				break
			}
			require.Contains(t, answer, "thread_id")
		}
		fillUp()
	}
	return fill, func() { require.NoError(t, os.Remove(rest)) }
}

// Who waits for a run whose end finds the disk full learns it within 3 s. A server that is stopped then has not died of its runs, whether or not their graphs had ended.
func TestStopsOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprintf("ended=%t", ended), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			fill, makeRoom := fullDisk(t, dir)
			c := startChild(t, dir, "", "lease=1m")
			run := c.create(t, "wait")
			for range 4 {
				if !c.executesAgain(t, run) {
					return // the step that ended had room on the full disk
				}
				fill(c.url)
				if ended {
					answer := make(chan string, 1)
					go func() { answer <- c.answer(run + "/join") }()
					began := time.Now()
					let(t, dir, "wait")
					require.Contains(t, <-answer, "its end cannot be saved: the disk is full")
					require.Less(t, time.Since(began), 3*time.Second)
					require.NoError(t, os.Remove(filepath.Join(dir, "wait")))
				}
				c.end(syscall.SIGTERM)
				requireHandedBack(t, filepath.Join(dir, "data"))
				makeRoom()
				c = startChild(t, dir, "", "lease=1m")
			}
			let(t, dir, "wait")
			require.True(t, c.becomes(t, "success", run))
		})
	}
}

// executesAgain waits until the node of a run that waits is executed; false when the run succeeds without that.
func (c *child) executesAgain(t *testing.T, run string) bool {
	t.Helper()
	executed := false
	require.Eventually(t, func() bool {
		select {
		case what, alive := <-c.executes:
			require.True(t, alive, "the server ended")
			require.Equal(t, "wait", what)
			executed = true
			return true
		default:
			return c.status(t, run) == "success"
		}
	}, 2*time.Minute, 20*time.Millisecond)
	return executed
}

// answer returns what the server answers to a GET, with the error that ended it.
func (c *child) answer(path string) string {
	resp, err := http.Get(c.url + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Sprint(string(text), err)
	}
	return string(text)
}

// requireHandedBack requires that the only run in a data folder waits, and that no server is believed to have died of it.
func requireHandedBack(t *testing.T, data string) {
	t.Helper()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: data})
	require.NoError(t, err)
	defer rows.Close()
	all, err := rows.Runs().ActiveRuns(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "pending 0", fmt.Sprint(all[0].Status, " ", all[0].Crashes))
}
