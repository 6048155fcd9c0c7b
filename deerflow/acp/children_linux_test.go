package acp_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What an agent started ends with it, although it holds its output.
func TestChildrenOfAnAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := agent(t, "child").Prompt(t.Context(), dir, nil, "x", quiet)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "child"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	gone := func() bool { // a zombie is, where nothing adopts it
		stat, err := os.ReadFile("/proc/" + string(text) + "/stat")
		return err != nil || syscall.Kill(pid, 0) != nil || len(stat) > 0 && containsZombie(string(stat))
	}
	require.Eventually(t, gone, 10*time.Second, 10*time.Millisecond)
}

func containsZombie(stat string) bool {
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return len(stat) > i+2 && stat[i+2] == 'Z'
		}
	}
	return false
}
