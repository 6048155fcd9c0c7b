package sandbox

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only commands of servers that are known to be dead are killed.
func TestAlive(t *testing.T) {
	t.Parallel()
	own := thisServer()
	require.NotEmpty(t, own)
	for name, want := range map[string]bool{
		own: true, "": true, "x": true, own + "0": false, "pid:[1]/1/1": true, "a/b/c/d": true,
	} {
		require.Equal(t, want, alive(name), name)
	}
	require.False(t, alive(own[:len(own)-len(startOf(os.Getpid()))]+"1"), "another process with this ID")
	require.Empty(t, startOf(1<<30))
}

// What a server left that died is killed when another one starts, in this test by the name of a server that never was.
func TestOrphansAreKilled(t *testing.T) { // not parallel: it kills all orphans of this machine
	own := thisServer()
	mine, orphan := exec.Command("sleep", "60"), exec.Command("sleep", "60")
	mine.Env, orphan.Env = []string{server + "=" + own}, []string{server + "=" + own[:len(own)-len(startOf(os.Getpid()))] + "1"}
	require.NoError(t, mine.Start())
	require.NoError(t, orphan.Start())
	require.Positive(t, killOrphans())
	require.ErrorContains(t, orphan.Wait(), "killed")
	require.NotEmpty(t, startOf(mine.Process.Pid))
	require.NoError(t, mine.Process.Kill())
	_ = mine.Wait()
}
