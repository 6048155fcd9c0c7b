package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/sandbox"
	"understudy/internal/child"
	"understudy/internal/seedtest"
)

// On a full disk a write fails and leaves the file as it was; commands fail as they do on any machine, and the sandbox works again when there is space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a small disk cannot be mounted here: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	local := sandbox.NewLocal(sandbox.Options{})
	t.Cleanup(local.Close)
	th, err := local.Open(sandbox.Place{ID: "local:u:t", Dir: filepath.Join(disk, "t")})
	require.NoError(t, err)
	t.Cleanup(th.Close)
	b := &bench{Thread: th, local: local, dir: filepath.Join(disk, "t")}

	require.NoError(t, b.Write(ws+"/kept", "as it was", false))
	out := b.run(t, "head -c 4000000 /dev/zero > filler; echo status $?")
	require.Contains(t, out, "No space left on device")
	require.NotContains(t, out, disk, "no path of this machine")
	require.Contains(t, out, "status 1")
	err = b.Write(ws+"/kept", strings.Repeat("x", 70<<10), false)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, "as it was", b.text(t, ws+"/kept"))
	require.ErrorIs(t, b.Write(ws+"/new", strings.Repeat("x", 70<<10), false), syscall.ENOSPC)
	entries, err := os.ReadDir(filepath.Join(disk, "t/user-data/workspace"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"filler", "kept"}, names, "nothing half written is left")

	require.Equal(t, "ok\n", b.run(t, "rm filler && echo ok"))
	require.NoError(t, b.Write(ws+"/kept", "changed", false))
	require.Equal(t, "changed", b.text(t, ws+"/kept"))
}

// No command makes a file of more than 2 GiB, not even one with holes.
func TestLargestFile(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	require.Equal(t, "fits\n", b.run(t, "truncate -s 2000M a && echo fits; rm a"))
	commands := []string{"truncate -s 2100M a && echo made"}
	if os.Getuid() != 0 { // root may raise any limit
		commands = append(commands, "ulimit -f unlimited; truncate -s 2100M a && echo made", "bash -c 'ulimit -H -f unlimited; truncate -s 2100M a' && echo made")
	}
	for _, command := range commands {
		require.NotContains(t, b.run(t, command), "made", command)
	}
}

// A command that prints 10 GB, before a landing 1 GB, costs neither memory nor, for a quick one, the run: the beginning and the end are kept.
func TestGigabytesOfOutput(t *testing.T) { // not parallel: it measures the memory of the process
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	b := setup(t, sandbox.Options{})
	before := child.ResidentMemory(os.Getpid())
	began := time.Now()
	gigabytes := 1
	if seedtest.InFull() {
		gigabytes = 10
	}
	out := b.run(t, fmt.Sprintf("echo BEGIN; head -c %d000000000 /dev/zero; echo; echo END", gigabytes))
	require.LessOrEqual(t, len([]rune(out)), 20_100)
	require.True(t, strings.HasPrefix(out, "BEGIN"))
	require.Contains(t, out, "END")
	grown := child.ResidentMemory(os.Getpid()) - before
	t.Logf("%d GB in %s, memory grew by %d MB", gigabytes, time.Since(began), grown>>20)
	require.Less(t, grown, int64(200<<20))
}
