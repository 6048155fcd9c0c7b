package acp_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/acp"
)

// What an agent started ends with it, although it holds its output.
func TestChildrenOfAnAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := agent(t, "child").Prompt(t.Context(), dir, nil, "x", quiet)
	require.NoError(t, err)
	requireGone(t, childOf(t, dir))
}

// childOf returns the process that an agent started.
func childOf(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "child"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return pid
}

func requireGone(t *testing.T, pid int) {
	t.Helper()
	gone := func() bool { // a zombie is, where nothing adopts it
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || syscall.Kill(pid, 0) != nil || len(stat) > 0 && containsZombie(string(stat))
	}
	require.Eventually(t, gone, 10*time.Second, 10*time.Millisecond)
}

// A process in a session of its own that holds the agent's pipes delays neither an answer nor the end of a timeout or a run, and ends too, unless it cleared its
// environment.
func TestDaemonsOfAnAgent(t *testing.T) {
	t.Parallel()
	for _, cleared := range []string{"", "yes"} {
		t.Run("cleared="+cleared, func(t *testing.T) {
			t.Parallel()
			ended := func(t *testing.T, dir string) {
				t.Helper()
				pid := childOf(t, dir)
				if cleared == "" {
					requireGone(t, pid)
				} else {
					require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
				}
			}
			prompt := func(ctx context.Context, dir, mode string, after time.Duration, text string) error {
				a := agent(t, mode)
				a.Env["CLEARED"], a.Timeout = cleared, after
				done := make(chan error, 1)
				go func() {
					_, err := a.Prompt(ctx, dir, nil, text, quiet)
					done <- err
				}()
				select {
				case err := <-done:
					return err
				case <-time.After(20 * time.Second):
					return errors.New("Prompt does not return")
				}
			}
			t.Run("answer", func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				require.NoError(t, prompt(t.Context(), dir, "daemon", time.Minute, "x"))
				ended(t, dir)
			})
			t.Run("timeout", func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				var late *acp.TimeoutError
				require.ErrorAs(t, prompt(t.Context(), dir, "daemon hangs", 2*time.Second, "x"), &late)
				ended(t, dir)
			})
			t.Run("cancel", func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				ctx, cancel := context.WithCancelCause(t.Context())
				gone := errors.New("cancelled by the user")
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()
					for ctx.Err() == nil {
						<-tick.C
						if text, err := os.ReadFile(filepath.Join(dir, "child")); err == nil && len(text) > 0 {
							cancel(gone)
						}
					}
				}()
				require.ErrorIs(t, prompt(ctx, dir, "daemon hangs", time.Minute, "x"), gone)
				cancel(nil)
				<-watched
				ended(t, dir)
			})
			t.Run("write", func(t *testing.T) { // it reads no more, and its child holds the end of stdin
				t.Parallel()
				dir := t.TempDir()
				var late *acp.TimeoutError
				require.ErrorAs(t, prompt(t.Context(), dir, "daemon deaf", 2*time.Second, strings.Repeat("x", 4<<20)), &late)
				ended(t, dir)
			})
		})
	}
}

func containsZombie(stat string) bool {
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return len(stat) > i+2 && stat[i+2] == 'Z'
		}
	}
	return false
}
