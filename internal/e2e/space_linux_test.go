package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An address space that is too small is named at the start, before the Go runtime meets its end.
func TestAddressSpace(t *testing.T) {
	bin, err := build()
	require.NoError(t, err)
	pr := newProject(t)
	pr.write("agent.py", "graph = None\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 1900000 && exec "$0" "$@"`, bin, "serve", "--config", filepath.Join(pr.dir, "langgraph.json"), "--data", t.TempDir(), "--port", "0")
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit, "%s", &out)
	require.Positive(t, exit.ExitCode())
	require.Contains(t, out.String(), "the address space is limited to 1900000KiB (ulimit -v, RLIMIT_AS), and 2GiB are needed")
	require.NotContains(t, out.String(), "goroutine")
}
