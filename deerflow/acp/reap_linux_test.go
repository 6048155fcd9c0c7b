package acp

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/group"
)

// The group of a program is killed while its ID cannot be that of another one, and a program that has closed its output has time to end by itself.
func TestGroupIsKilledBeforeItsIDIsFree(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"ends":    "exec >&-; read -r x; sleep 0.3; echo saved > saved",
		"remains": "trap '' TERM; exec >&-; sleep 600",
		"child":   "sleep 600 & echo saved > saved",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c, err := Agent{Name: "x", Command: "sh", Args: []string{"-c", script}}.start(dir, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			var states []string // of the program when its group is killed
			c.killGroup = func(pid int) {
				_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
				states = append(states, map[bool]string{true: "not reaped", false: "reaped"}[err == nil])
				group.Kill(pid)
			}
			begin := time.Now()
			c.end()
			require.NotEmpty(t, states)
			require.NotContains(t, states, "reaped")
			require.NotNil(t, c.cmd.ProcessState, "it is reaped afterwards")
			if name == "remains" {
				require.GreaterOrEqual(t, time.Since(begin), leave)
			} else {
				require.FileExists(t, filepath.Join(dir, "saved"))
			}
		})
	}
}
