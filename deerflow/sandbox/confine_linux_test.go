package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a folder of programs its libraries are readable, and not what else is next to it.
func TestPrograms(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"/h/.pyenv/shims", "/h/.pyenv"}, programs("/h/.pyenv/shims"))
	require.Equal(t, []string{"/h/bin", "/h/lib", "/h/lib64", "/h/libexec", "/h/share/uv"}, programs("relative::/h/bin"))
	require.Equal(t, []string{"/h/tools"}, programs("/h/tools"))
}

// Files of /etc that programs look for are there; those that only root may read are not.
func TestFilesOfTheSystem(t *testing.T) {
	t.Parallel()
	for _, name := range ownFiles() {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular(), name)
	}
	if landlockLevel() == 0 {
		return
	}
	l := NewLocal(Options{})
	defer l.Close()
	th, err := l.Open(Place{ID: "x", Dir: t.TempDir()})
	require.NoError(t, err)
	defer th.Close()
	command := "e=$(printf '\\057etc'); cat $e/passwd > a && echo readable; cat $e/shadow $e/sudoers $e/ssl/private/* 2>/dev/null | wc -c"
	out, err := th.Run(t.Context(), Command{Text: command})
	require.NoError(t, err)
	require.Equal(t, "readable\n0\n", out)
}

// Programs, and scripts in files, find the thread's folders at their virtual paths, and those of no other thread. The machine's own folder stays as it is.
func TestScriptsFindVirtualPaths(t *testing.T) {
	t.Parallel()
	l := NewLocal(Options{})
	defer l.Close()
	if !l.Finds() {
		t.Skip("only a server with CAP_SYS_ADMIN can mount")
	}
	home, skills, data := t.TempDir(), t.TempDir(), t.TempDir()
	if below, err := os.MkdirTemp(mountPoint, "understudy-test-"); err == nil { // a home there is not hidden
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(below)) })
		home = below
	}
	entries := func() (names []string) { // without those of other tests
		list, err := os.ReadDir(mountPoint)
		require.NoError(t, err)
		for _, e := range list {
			if !strings.HasPrefix(e.Name(), "understudy-test-") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	before := entries()
	require.NoError(t, os.MkdirAll(filepath.Join(skills, "demo"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(skills, "demo", "a.txt"), []byte("a skill\n"), 0o644))
	open := func(id string) *Thread {
		th, err := l.Open(Place{ID: id, Dir: filepath.Join(home, id), Mounts: []Mount{{Virtual: "/mnt/skills/public", Host: skills}, {Virtual: "/data", Host: data, Write: true}}})
		require.NoError(t, err)
		t.Cleanup(th.Close)
		return th
	}
	one, two := open("one"), open("two")
	ctx := t.Context()
	require.NoError(t, one.Write(Uploads+"/table.csv", "1,2\n", false))
	require.NoError(t, two.Write(Uploads+"/secret.csv", "secret\n", false))
	script := "cat /mnt/user-data/uploads/*.csv /mnt/skills/public/demo/a.txt > /mnt/user-data/outputs/chart.txt\npwd; echo $HOME\ntouch /mnt/skills/public/b /mnt/b 2>/dev/null || echo refused\nls -d /mnt/acp-workspace 2>&1 | tail -1\n"
	require.NoError(t, one.Write(Workspace+"/draw.sh", script, false))
	out, err := one.Run(ctx, Command{Text: "bash draw.sh && cat /mnt/user-data/outputs/chart.txt && echo 3 > /data/x && cat /data/x"})
	require.NoError(t, err)
	require.Equal(t, "/mnt/user-data/workspace\n/mnt/user-data/workspace\nrefused\nls: cannot access '/mnt/acp-workspace': No such file or directory\n1,2\na skill\n3\n", out)
	text, err := os.ReadFile(filepath.Join(home, "one", "user-data", "outputs", "chart.txt"))
	require.NoError(t, err)
	require.Equal(t, "1,2\na skill\n", string(text))
	out, err = two.Run(ctx, Command{Text: "cat /mnt/user-data/uploads/*; sleep 0.1 & wait; ls /mnt/user-data"})
	require.NoError(t, err)
	require.Equal(t, "secret\noutputs\nuploads\nworkspace\n", out)
	require.Equal(t, before, entries())
	require.NoDirExists(t, UserData)
}

// What the machine has below the mount point is not written to: a mount inside of it needs a folder that is there, and never goes through a link. Of the
// others the paths are replaced in commands, which work all the same.
func TestMountsInFoldersOfTheMachine(t *testing.T) {
	t.Parallel()
	l := NewLocal(Options{})
	defer l.Close()
	if !l.Finds() {
		t.Skip("only a server with CAP_SYS_ADMIN can mount")
	}
	disk, err := os.MkdirTemp(mountPoint, "understudy-test-")
	if err != nil {
		t.Skip("nothing can be made below "+mountPoint+": ", err)
	}
	link := disk + "-link"
	t.Cleanup(func() { require.NoError(t, errors.Join(os.RemoveAll(disk), os.RemoveAll(link))) })
	target := t.TempDir()
	require.NoError(t, os.Symlink(target, link))
	require.NoError(t, os.Mkdir(filepath.Join(disk, "there"), 0o755))
	repo := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(repo, "f"), []byte("of the repository\n"), 0o644))
	for virtual, mounted := range map[string]bool{disk: true, disk + "/there": true, disk + "/absent": false, disk + "/absent/deep": false, link: false, link + "/x": false, disk + "-free": true, disk + "-free/deep": true} {
		th, err := l.Open(Place{ID: virtual, Dir: t.TempDir(), Mounts: []Mount{{Virtual: virtual, Host: repo}}})
		require.NoError(t, err)
		require.Equal(t, mounted, slices.ContainsFunc(th.bound(), func(m *mount) bool { return m.Virtual == virtual }), virtual)
		out, err := th.Run(t.Context(), Command{Text: "cat " + virtual + "/f"})
		require.NoError(t, err)
		require.Equal(t, "of the repository\n", out, virtual)
		th.Close()
	}
	for _, dir := range []string{disk, target} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, map[string]int{disk: 1, target: 0}[dir])
	}
}
