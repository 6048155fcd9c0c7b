package sandbox

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Podman and what it starts leave no files in the folder that the server was started in: they work in the folder of the socket, which is removed.
func TestPodmanWorksInAFolderOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "podman")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ntouch oom && pwd -P > '"+dir+"/at'\n"), 0o700)) //nolint:gosec // it is started
	_, _, err := servePodman(program, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "it has ended")
	at, err := os.ReadFile(filepath.Join(dir, "at"))
	require.NoError(t, err)
	require.Contains(t, filepath.Base(strings.TrimSpace(string(at))), "understudy-podman-")
	require.NoDirExists(t, strings.TrimSpace(string(at)))
	require.NoFileExists(t, "oom")
}
