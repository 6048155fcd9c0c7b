package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What fails leaves no file and no folder, and the advice is about the error.
func TestInitThatFails(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	taken := filepath.Join(root, "taken") // a link to nowhere where the template has a folder
	require.NoError(t, os.Mkdir(taken, 0o700))
	files, err := projectFiles("frontend")
	require.NoError(t, err)
	blocked := ""
	for _, name := range sortedKeys(files) {
		if folder, _, below := strings.Cut(name, "/"); below {
			blocked = folder
		}
	}
	require.NotEmpty(t, blocked)
	require.NoError(t, os.Symlink(filepath.Join(root, "nowhere"), filepath.Join(taken, blocked)))
	for _, dir := range []string{filepath.Join(file, "new"), taken} {
		var out bytes.Buffer
		err := writeProject("frontend", "", "", dir, &out)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "make room")
		require.Contains(t, err.Error(), "name another folder")
		require.Empty(t, out.String())
	}
	left, err := os.ReadDir(taken)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestAdviceOnInit(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		syscall.ENOSPC: "make room for 1 KiB, or name another folder", syscall.EDQUOT: "make room for 1 KiB, or name another folder",
		fs.ErrExist: "name another folder", syscall.ENOTDIR: "name another folder", fs.ErrPermission: "name a folder in which this user may write", syscall.EROFS: "name a folder in which this user may write",
	} {
		require.Equal(t, want, adviceOn(fmt.Errorf("x: %w", err), nil), err)
	}
}

// Folders that were created are removed, those above them too; those that were there, and those that others write into, stay.
func TestFoldersOfInit(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	made, err := makeFolders(filepath.Join(root, "a", "b", "c"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(root, "a"), filepath.Join(root, "a", "b"), filepath.Join(root, "a", "b", "c")}, made)
	again, err := makeFolders(filepath.Join(root, "a", "b"))
	require.NoError(t, err)
	require.Empty(t, again)
	require.NoError(t, os.WriteFile(filepath.Join(root, "a", "theirs"), nil, 0o600))
	removeAll(made)
	left, err := os.ReadDir(filepath.Join(root, "a"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "theirs", left[0].Name())
}

// The steps that init prints work in a shell for any name of a folder.
func TestStepsOfInitAreQuoted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"my project", "it's", "a$b"} {
		for _, template := range []string{"agent", "frontend"} { // one step, and several
			dir := filepath.Join(t.TempDir(), name)
			out, err := execute(t, "init", dir, "--template", template)
			require.NoError(t, err)
			_, steps, _ := strings.Cut(out, "serve it:\n\n    ")
			step, _, _ := strings.Cut(steps, "\n")
			step, _, _ = strings.Cut(step, " && ")
			at, err := exec.CommandContext(t.Context(), "sh", "-c", step+" && pwd").Output()
			require.NoError(t, err, step)
			require.Equal(t, dir+"\n", string(at))
		}
	}
}
