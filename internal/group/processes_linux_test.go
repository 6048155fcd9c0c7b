package group

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a process that is one's own is killed: not another one, not one that is gone, and not one that is another when it is looked at again.
func TestKillIf(t *testing.T) {
	t.Parallel()
	start := func(variable string) *exec.Cmd {
		c := exec.Command("sleep", "600") //nolint:noctx // the test ends it
		c.Env = append(os.Environ(), variable)
		require.NoError(t, c.Start())
		return c
	}
	own, other := start("UNDERSTUDY_TEST=own"), start("UNDERSTUDY_TEST=other")
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	mine := func(dir string) bool {
		require.Contains(t, []string{"/proc/" + strconv.Itoa(own.Process.Pid), "/proc/" + strconv.Itoa(other.Process.Pid)}, dir)
		return HasVariable(dir, "UNDERSTUDY_TEST=own")
	}
	require.False(t, KillIf(other.Process.Pid, mine))
	looks := 0
	require.False(t, KillIf(own.Process.Pid, func(string) bool { looks++; return looks == 1 }))
	require.Equal(t, 2, looks)
	require.NoError(t, syscall.Kill(own.Process.Pid, 0))
	require.True(t, KillIf(own.Process.Pid, mine))
	var exit *exec.ExitError
	require.ErrorAs(t, own.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	require.False(t, KillIf(own.Process.Pid, mine))
	require.NoError(t, syscall.Kill(other.Process.Pid, 0))
}
