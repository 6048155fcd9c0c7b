package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/deerflow/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a sandbox with a thread, skills, and a mount.
type bench struct {
	*sandbox.Thread
	local *sandbox.Local
	dir   string // of the thread
}

func setup(t *testing.T, o sandbox.Options) *bench {
	t.Helper()
	dir := t.TempDir()
	local := sandbox.NewLocal(o)
	t.Cleanup(local.Close)
	for name, text := range map[string]string{"skills/public/demo/SKILL.md": "DEMO\n", "elsewhere/secret.txt": "secret", "data/a.txt": "mounted\n", "threads/t/acp-workspace/x.txt": "acp"} {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "skills/public/linked")))
	th, err := local.Open(sandbox.Place{ID: "local:u:t", Dir: filepath.Join(dir, "threads/t"), Mounts: []sandbox.Mount{
		{Virtual: "/mnt/skills", Host: filepath.Join(dir, "skills"), Links: true},
		{Virtual: "/mnt/skills/custom", Host: filepath.Join(dir, "custom")}, // does not exist
		{Virtual: "/mnt/data", Host: filepath.Join(dir, "data"), Write: true},
	}})
	require.NoError(t, err)
	t.Cleanup(th.Close)
	return &bench{Thread: th, local: local, dir: filepath.Join(dir, "threads/t")}
}

func (b *bench) run(t *testing.T, command string) string {
	t.Helper()
	out, err := b.Run(t.Context(), sandbox.Command{Text: command})
	require.NoError(t, err, command)
	return out
}

// text returns a file as an agent reads it.
func (b *bench) text(t *testing.T, virtual string) string {
	t.Helper()
	got, err := b.Read(t.Context(), virtual, sandbox.Range{}, 1000)
	require.NoError(t, err)
	return got.Content
}

const ws = sandbox.Workspace

func TestReadWriteReplace(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	f := ws + "/a/b.txt"
	require.NoError(t, b.Write(f, "one\ntwo\n", false))
	require.NoError(t, b.Write(f, "three\n", true))
	require.Equal(t, "one\ntwo\nthree\n", b.text(t, f))
	for _, tt := range []struct {
		from, to int
		want     string
	}{{2, 2, "two"}, {1, 2, "one\ntwo"}, {0, 2, "one\ntwo"}, {2, 0, "two\nthree"}, {9, 9, ""}, {9, 0, ""}} {
		got, err := b.Read(t.Context(), f, sandbox.Range{From: tt.from, To: tt.to}, 100)
		require.NoError(t, err)
		require.Equal(t, sandbox.Text{Content: tt.want, Size: 14}, got, "%+v", tt)
	}
	require.NoError(t, b.Replace(f, "two", "zwei", false))
	require.ErrorIs(t, b.Replace(f, "none", "x", false), sandbox.ErrNotFound)
	require.ErrorIs(t, b.Replace(f, "e\n", "x", false), sandbox.ErrAmbiguous)
	require.NoError(t, b.Replace(f, "e\n", "E\n", true))
	require.Equal(t, "onE\nzwei\nthreE\n", b.text(t, f))
	require.ErrorIs(t, b.Write(ws+"/a", "x", false), sandbox.ErrFolder)
	_, err := b.Read(t.Context(), ws+"/a", sandbox.Range{}, 10)
	require.ErrorIs(t, err, sandbox.ErrFolder)
	_, err = b.Read(t.Context(), ws+"/none", sandbox.Range{}, 10)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = b.Read(t.Context(), "/mnt/skills/custom/x/SKILL.md", sandbox.Range{}, 10)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, "acp", b.text(t, "/mnt/acp-workspace/x.txt"))
	require.Equal(t, "secret", b.text(t, "/mnt/skills/public/linked/secret.txt")) // an administrator's link
	left, err := os.ReadDir(filepath.Join(b.dir, "user-data/workspace/a"))
	require.NoError(t, err)
	require.Len(t, left, 1) // no staging file stays
}

// Limits are in characters, and never split one.
func TestReadLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	require.NoError(t, quick.Check(func(text string, n uint8) bool {
		text = sandbox.Clean(text)
		require.NoError(t, b.Write(ws+"/q", text, false))
		got, err := b.Read(t.Context(), ws+"/q", sandbox.Range{}, int(n))
		r := []rune(text)
		want := string(r[:min(len(r), int(n))])
		return err == nil && got.Content == want && got.Cut == (len(r) > int(n))
	}, &quick.Config{MaxCount: 200}))
	require.NoError(t, b.Write(ws+"/bin", "a\xff\xfe", false))
	_, err := b.Read(t.Context(), ws+"/bin", sandbox.Range{}, 10)
	require.ErrorIs(t, err, sandbox.ErrBinary)
}

// No operation reaches what is outside, whichever way a path leads there.
func TestEscapes(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	out := filepath.Join(b.dir, "../../elsewhere")
	data := filepath.Join(b.dir, "user-data")
	for link, to := range map[string]string{"workspace/abs": out, "workspace/rel": "../../../../elsewhere", "workspace/file": filepath.Join(out, "secret.txt"), "workspace/up": "../..", "workspace/top": "/"} {
		require.NoError(t, os.Symlink(to, filepath.Join(data, link)))
	}
	for _, p := range []string{
		"/etc/passwd", "/", "", "relative", "/mnt", "/mnt/user-data-x/a", "/mnt/user-data/other/a", "/mnt/user-data/workspace/../../../../../etc/passwd", `/mnt/user-data/workspace\..\..\x`,
		"/mnt/user-data/..", "/mnt/user-data/workspace/a\x00b", ws + "/abs/secret.txt", ws + "/rel/secret.txt", ws + "/file", ws + "/up/acp-workspace/x.txt", ws + "/top/etc/passwd",
		"/proc/self/environ", "//etc/passwd", "/mnt/user-data/./../../etc/passwd", "/mnt/skills/../../etc/passwd", "/mnt/data/../../etc/passwd",
	} {
		_, err := b.Read(t.Context(), p, sandbox.Range{}, 100)
		require.ErrorIs(t, err, fs.ErrPermission, "read %q", p)
		require.NotContains(t, err.Error(), b.dir)
		require.ErrorIs(t, b.Write(p, "x", false), fs.ErrPermission, "write %q", p)
		require.ErrorIs(t, b.Write(p, "x", true), fs.ErrPermission, "append %q", p)
		require.ErrorIs(t, b.Replace(p, "secret", "x", true), fs.ErrPermission, "replace %q", p)
		_, _, err = b.List(t.Context(), path.Dir(p)+"/"+path.Base(p), 10)
		require.Error(t, err, "list %q", p)
	}
	for _, p := range []string{"/mnt/skills/public/demo/SKILL.md", "/mnt/acp-workspace/x.txt", "/mnt/skills/new.md", "/mnt/user-data/new.txt", "/mnt/user-data"} {
		require.ErrorIs(t, b.Write(p, "x", false), fs.ErrPermission, p)
	}
	lines, _, err := b.Grep(t.Context(), sandbox.UserData, sandbox.Search{Pattern: "secret|root:", Limit: 10})
	require.NoError(t, err)
	require.Empty(t, lines)
	list, _, err := b.List(t.Context(), ws, 100)
	require.NoError(t, err)
	require.Empty(t, list)
	secret, err := os.ReadFile(filepath.Join(out, "secret.txt"))
	require.NoError(t, err)
	require.Equal(t, "secret", string(secret))
}

// Random paths of parts that mean something never lead outside.
func TestPathsStayInside(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	parts := []string{"..", ".", "", "a", "b c", "mnt", "user-data", "workspace", "outputs", "uploads", "skills", "etc", "...", "é", "acp-workspace", "~", "custom", "data"}
	rnd := rand.New(rand.NewPCG(1, 2))
	inside := 0
	for range 20_000 {
		p := []string{"", "/", "/mnt/", "/mnt/user-data/", ws + "/", "/mnt/skills/", "/mnt/data/"}[rnd.IntN(7)]
		for range rnd.IntN(6) {
			p += parts[rnd.IntN(len(parts))] + "/"
		}
		host, err := b.Host(p)
		if err != nil {
			continue
		}
		inside++
		back, ok := b.Virtual(host)
		require.True(t, ok, p)
		require.Equal(t, path.Clean(p), back)
		require.True(t, strings.HasPrefix(host, filepath.Dir(filepath.Dir(b.dir))+"/"), "%q is %q", p, host)
		require.NotContains(t, strings.Split(host, "/"), "..")
		require.Equal(t, "x '"+back+"': y", b.Mask("x '"+host+"': y"))
	}
	require.Greater(t, inside, 1000)
	_, ok := b.Virtual("/etc/passwd")
	require.False(t, ok)
	_, ok = b.Virtual(b.dir + "/user-data-other")
	require.False(t, ok)
}

func TestListGlobGrep(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	for _, p := range []string{"/a.py", "/d/b.py", "/d/e/c.py", "/d/e/f/deep.py", "/.git/config.py", "/node_modules/m.py"} {
		require.NoError(t, b.Write(ws+p, "import os\nNeedle here "+p+"\n", false))
	}
	list, cut, err := b.List(t.Context(), ws, 100)
	require.NoError(t, err)
	require.False(t, cut)
	require.Equal(t, []string{ws + "/a.py", ws + "/d/", ws + "/d/b.py", ws + "/d/e/"}, list)
	_, cut, err = b.List(t.Context(), ws, 2)
	require.NoError(t, err)
	require.True(t, cut)
	list, _, err = b.List(t.Context(), "/mnt/user-data", 100)
	require.NoError(t, err)
	require.Contains(t, list, "/mnt/user-data/outputs/")
	for pattern, want := range map[string]int{"**/*.py": 4, "*.py": 4, "d/*.py": 1, "e/c.py": 1, "/d/**": 3, "*.go": 0} {
		list, cut, err := b.Glob(t.Context(), ws, pattern, false, 100)
		require.NoError(t, err)
		require.False(t, cut)
		require.Len(t, list, want, pattern)
	}
	list, _, err = b.Glob(t.Context(), ws, "d/*", true, 100)
	require.NoError(t, err)
	require.Equal(t, []string{ws + "/d/b.py", ws + "/d/e"}, list)
	_, _, err = b.Glob(t.Context(), ws, "[", false, 100)
	require.ErrorIs(t, err, sandbox.ErrPattern)
	_, _, err = b.Glob(t.Context(), ws+"/a.py", "*", false, 100)
	require.ErrorIs(t, err, sandbox.ErrNoFolder)
	lines, cut, err := b.Grep(t.Context(), ws, sandbox.Search{Pattern: "needle.*e/c", Limit: 10})
	require.NoError(t, err)
	require.False(t, cut)
	require.Equal(t, []sandbox.Line{{Path: ws + "/d/e/c.py", Number: 2, Text: "Needle here /d/e/c.py"}}, lines)
	lines, cut, err = b.Grep(t.Context(), ws, sandbox.Search{Pattern: "import", Glob: "**/*.py", Limit: 2})
	require.NoError(t, err)
	require.True(t, cut)
	require.Len(t, lines, 2)
	lines, _, err = b.Grep(t.Context(), ws+"/a.py", sandbox.Search{Pattern: "NEEDLE", CaseSensitive: true, Limit: 2})
	require.NoError(t, err)
	require.Empty(t, lines)
	lines, _, err = b.Grep(t.Context(), ws+"/a.py", sandbox.Search{Pattern: ".", Literal: true, Limit: 2})
	require.NoError(t, err)
	require.Len(t, lines, 1)
	_, _, err = b.Grep(t.Context(), ws, sandbox.Search{Pattern: "(", Limit: 2})
	require.Error(t, err)
	_, _, err = b.Grep(t.Context(), ws+"/none", sandbox.Search{Pattern: "x", Limit: 2})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Pipes without a writer and files that grow do not hold up readers.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	b.run(t, "mkfifo p; ln -s p q; echo x > a.txt")
	for _, p := range []string{"/p", "/q"} {
		_, err := b.Read(t.Context(), ws+p, sandbox.Range{}, 10)
		require.ErrorIs(t, err, sandbox.ErrSpecial)
		require.ErrorIs(t, b.Write(ws+p, "x", false), sandbox.ErrSpecial)
	}
	lines, _, err := b.Grep(t.Context(), ws, sandbox.Search{Pattern: "x", Limit: 9})
	require.NoError(t, err)
	require.Len(t, lines, 1)
}

// What is read of a file does not depend on how large the file is.
func TestLargeFiles(t *testing.T) { // not parallel: it measures what is allocated
	b := setup(t, sandbox.Options{})
	at := filepath.Join(b.dir, "user-data/workspace/large")
	f, err := os.Create(at)
	require.NoError(t, err)
	line := bytes.Repeat([]byte("x"), 4095)
	line = append(line, '\n')
	for range 16 << 10 { // 64 MiB
		_, err := f.Write(line)
		require.NoError(t, err)
	}
	_, err = f.WriteString("the end\n")
	require.NoError(t, err)
	require.NoError(t, f.Truncate(10<<30)) // and a hole to 10 GiB, one line
	require.NoError(t, f.Close())
	measure := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	used := measure(func() {
		got, err := b.Read(t.Context(), ws+"/large", sandbox.Range{}, 50_000)
		require.NoError(t, err)
		require.True(t, got.Cut)
		require.Len(t, got.Content, 50_000)
		got, err = b.Read(t.Context(), ws+"/large", sandbox.Range{From: 16<<10 + 1, To: 16<<10 + 1}, 50)
		require.NoError(t, err)
		require.Equal(t, "the end", got.Content)
	})
	require.Less(t, used, uint64(4<<20), "bytes allocated")
	used = measure(func() {
		lines, _, err := b.Grep(t.Context(), ws+"/large", sandbox.Search{Pattern: "the end", Limit: 1, CaseSensitive: true, Literal: true})
		require.NoError(t, err)
		require.Equal(t, 16<<10+1, lines[0].Number)
	})
	require.Less(t, used, uint64(256<<20), "bytes allocated") // of 1 GiB; the race detector empties the pools of package regexp
	_, err = b.Bytes(ws+"/large", 1<<20)
	var large *sandbox.TooLarge
	require.ErrorAs(t, err, &large)
	require.ErrorAs(t, b.Replace(ws+"/large", "a", "b", true), &large)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Read(ctx, ws+"/large", sandbox.Range{From: 1 << 30}, 10)
	require.ErrorIs(t, err, context.Canceled)
}

// Writers of one file wait for each other: nothing is lost, and readers see whole versions.
func TestConcurrentWrites(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	const n = 40
	var start strings.Builder
	for i := range n {
		fmt.Fprintf(&start, "<%d>\n", i)
	}
	require.NoError(t, b.Write(ws+"/r", start.String(), false))
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := b.Replace(ws+"/r", fmt.Sprintf("<%d>", i), fmt.Sprintf("[%d]", i), false); err != nil {
				t.Error(err)
			}
			if err := b.Write(ws+"/log", fmt.Sprintf("line %d\n", i), true); err != nil {
				t.Error(err)
			}
			if got := b.text(t, ws+"/r"); strings.Count(got, "\n") != n {
				t.Errorf("half a version: %q", got)
			}
		})
	}
	all.Wait()
	require.Equal(t, strings.NewReplacer("<", "[", ">", "]").Replace(start.String()), b.text(t, ws+"/r"))
	require.Equal(t, n, strings.Count(b.text(t, ws+"/log"), "\n"))
}

func TestModeIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := sandbox.NewLocal(sandbox.Options{Confine: sandbox.ConfineOff, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.Equal(t, "none", l.Mode())
	require.Contains(t, log.String(), "not confined")
	require.Contains(t, log.String(), "sandbox=none")
}

func TestOpenNeedsAFolder(t *testing.T) {
	t.Parallel()
	_, err := sandbox.NewLocal(sandbox.Options{}).Open(sandbox.Place{ID: "x", Dir: "relative"})
	require.Error(t, err)
}

func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, 5*time.Millisecond, what)
}

var errGone = errors.New("the user left")
