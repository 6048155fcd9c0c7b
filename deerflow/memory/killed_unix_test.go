//go:build unix

package memory

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const childFolder = "UNDERSTUDY_MEMORY_FOLDER"

// TestKilledChild learns until it is killed: while the model reads the second of two conversations.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv(childFolder)
	if dir == "" {
		t.Skip("runs as a child of TestKilledWhileLearning")
	}
	asked := 0
	l := inFolder(dir, func(ctx context.Context, _ string) (string, error) {
		if asked++; asked == 1 {
			return fact("likes tea", 0.9), nil
		}
		fmt.Println("reads")
		<-ctx.Done()
		return "", ctx.Err()
	})
	require.NoError(t, l.Add(t.Context(), "ann", "t1", []Turn{{User: true, Text: "likes tea"}}))
	require.NoError(t, l.Add(t.Context(), "ann", "t2", []Turn{{User: true, Text: "likes tea"}}))
	require.NoError(t, l.Run(t.Context()))
}

// A process that is killed while it learns loses nothing: the next one learns what was not finished, and not what was. Neither does a memory have a fact twice whose
// conversation comes again, because the process was killed between the memory and the note that it is done.
func TestKilledWhileLearning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledChild$", "-test.v")
	child.Env = append(os.Environ(), childFolder+"="+dir)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "reads"; {
	}
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait(), "killed")

	var asked atomic.Int64
	l := inFolder(dir, func(context.Context, string) (string, error) {
		return fact(strings.Repeat("really ", int(asked.Add(1)-1))+"likes tea", 0.9), nil // in other words each time
	})
	require.Equal(t, 1, l.waits(t))
	left, err := filepath.Glob(filepath.Join(l.folder(), "*.json"))
	require.NoError(t, err)
	text, err := os.ReadFile(left[0])
	require.NoError(t, err)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		require.Eventually(t, func() bool { return l.waits(t) == 0 }, time.Minute, time.Millisecond)
		cancel()
		require.NoError(t, <-ended)
		m, err := l.Book.Read(t.Context(), "ann")
		require.NoError(t, err)
		require.Len(t, m.Facts, 1)
		require.NoError(t, os.WriteFile(left[0], text, 0o600)) // as if it was killed before it deleted the file
	}
	require.EqualValues(t, 1, asked.Load(), "what was learned is not asked for again")
}
