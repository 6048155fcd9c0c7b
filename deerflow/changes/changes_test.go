//go:build unix

package changes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// patched applies a difference in the unified format.
func patched(t *testing.T, before []string, diff string) []string {
	t.Helper()
	var out []string
	at := 0
	for i, line := range strings.Split(diff, "\n") {
		switch {
		case i < 2:
		case strings.HasPrefix(line, "@@"):
			var first int
			_, err := fmt.Sscanf(line, "@@ -%d", &first)
			require.NoError(t, err)
			if strings.HasPrefix(line, fmt.Sprintf("@@ -%d,0 ", first)) {
				first++
			}
			require.GreaterOrEqual(t, first-1, at, "hunks ascend")
			out, at = append(out, before[at:first-1]...), first-1
		case line[0] == '+':
			out = append(out, line[1:])
		default:
			require.Equal(t, before[at], line[1:])
			if at++; line[0] == ' ' {
				out = append(out, line[1:])
			}
		}
	}
	return append(out, before[at:]...)
}

// A difference leads from one text to the other, and has not more edits than Python's, whatever the texts are.
func TestDifferencesLeadFromOneTextToTheOther(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		letters := 1 + random.IntN(6)
		a := make([]string, random.IntN(40))
		for i := range a {
			a[i] = strings.Repeat("x", random.IntN(letters))
		}
		b := append([]string(nil), a...)
		for range random.IntN(12) {
			at := random.IntN(len(b) + 1)
			if random.IntN(2) == 0 || at == len(b) {
				b = append(b[:at:at], append([]string{strings.Repeat("x", random.IntN(letters))}, b[at:]...)...)
			} else {
				b = append(b[:at:at], b[at+1:]...)
			}
		}
		text := func(list []string) string {
			if len(list) == 0 {
				return ""
			}
			return strings.Join(list, "\n") + "\n"
		}
		work := maxWork
		diff, added, deleted := unified("a/f", "b/f", text(a), text(b), &work)
		if diff == "" {
			require.Equal(t, text(a), text(b))
			continue
		}
		require.Equal(t, text(b), text(patched(t, a, diff)), "%q to %q: %s", a, b, diff)
		require.Equal(t, len(b)-len(a), added-deleted)
		require.Equal(t, len(a)+len(b)-2*common(a, b), added+deleted, "%q to %q", a, b)
	}
}

// common returns how many lines the longest common subsequence has.
func common(a, b []string) int {
	best := make([]int, len(b)+1)
	for _, line := range a {
		before := 0
		for j := range b {
			old := best[j+1]
			if line == b[j] {
				best[j+1] = before + 1
			} else {
				best[j+1] = max(old, best[j])
			}
			before = old
		}
	}
	return best[len(b)]
}

// The difference is written as Python's difflib and diff -u write it.
func TestDifferencesAreInTheUnifiedFormat(t *testing.T) {
	t.Parallel()
	count := func(from, to int) string {
		var b strings.Builder
		for n := from; n <= to; n++ {
			fmt.Fprintf(&b, "%d\n", n)
		}
		return b.String()
	}
	all := count(1, 20)
	without := func(n, with string) string { return strings.Replace(all, "\n"+n+"\n", "\n"+with, 1) }
	for name, c := range map[string]struct{ before, after, diff string }{
		"created": {"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b"},
		"emptied": {"a\n", "", "@@ -1 +0,0 @@\n-a"},
		"first":   {all, count(2, 20), "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4"},
		"one":     {all, without("3", "x\n"), "@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+x\n 4\n 5\n 6"},
		"near":    {all, strings.Replace(without("3", ""), "\n10\n", "\n", 1), "@@ -1,13 +1,11 @@\n 1\n 2\n-3\n 4\n 5\n 6\n 7\n 8\n 9\n-10\n 11\n 12\n 13"},
		"apart":   {all, strings.Replace(without("3", ""), "\n15\n", "\n", 1), "@@ -1,6 +1,5 @@\n 1\n 2\n-3\n 4\n 5\n 6\n@@ -12,7 +11,6 @@\n 12\n 13\n 14\n-15\n 16\n 17\n 18"},
		"comment": {"-- x\n", "++ y\n", "@@ -1 +1 @@\n--- x\n+++ y"},
	} {
		work := maxWork
		got, _, _ := unified("a/f", "b/f", c.before, c.after, &work)
		require.Equal(t, "--- a/f\n+++ b/f\n"+c.diff, got, name)
	}
}

// Texts that were made to be slow to compare cost no more than the bound.
func TestHostileTextsAreBounded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	text := func() string {
		var b strings.Builder
		for range 100_000 {
			b.WriteString([]string{"\n", "a\n"}[random.IntN(2)])
		}
		return b.String()
	}
	work := 100_000
	a, b := text(), text()
	diff, added, deleted := unified("a", "b", a, b, &work)
	require.Less(t, work, 1)
	require.Greater(t, work, -200_000)
	require.Positive(t, added+deleted)
	require.Equal(t, lines(b), patched(t, lines(a), diff))
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	at := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
}

func take(t *testing.T, dir string, limits Limits) *Snapshot {
	t.Helper()
	s, err := Take(t.Context(), dir, limits)
	require.NoError(t, err)
	return s
}

// Every kind of change is reported once, with what may be shown of it.
func TestChangesOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.Nil(t, Compare(take(t, filepath.Join(dir, "none"), Defaults), take(t, dir, Defaults), Defaults))
	for name, content := range map[string]string{
		"outputs/kept.txt": "same\n", "outputs/edited.txt": "one\ntwo\n", "outputs/gone.txt": "bye\n", "workspace/.env": "KEY=1", "workspace/a.bin": "\x00\x01", "workspace/image.png": "text",
		"workspace/big.txt": strings.Repeat("x", Defaults.FileBytes+1), "workspace/node_modules/x.js": "1", "uploads/u.txt": "1", "workspace/replaced": "file",
	} {
		write(t, dir, name, content)
	}
	secret := filepath.Join(t.TempDir(), "host.txt")
	require.NoError(t, os.WriteFile(secret, []byte("outside"), 0o600))
	before := take(t, dir, Defaults)
	require.NoError(t, os.Remove(filepath.Join(dir, "outputs/gone.txt")))
	require.NoError(t, os.Remove(filepath.Join(dir, "workspace/replaced")))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "workspace/replaced")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "workspace/pipe"), 0o600))
	for name, content := range map[string]string{
		"outputs/edited.txt": "one\nthree\n", "outputs/deep/new.md": "# new\n", "workspace/.env": "KEY=22", "workspace/a.bin": "\x00\x02", "workspace/image.png": "other",
		"workspace/big.txt": strings.Repeat("x", Defaults.FileBytes+2), "workspace/node_modules/x.js": "2", "uploads/u.txt": "2", "workspace/empty.txt": "",
	} {
		write(t, dir, name, content)
	}
	got := Compare(before, take(t, dir, Defaults), Defaults)
	require.Equal(t, Summary{Created: 2, Modified: 5, Deleted: 1, Links: 1, Additions: 2, Deletions: 2, Truncated: true}, got.Summary)
	require.Equal(t, "9 files changed +2 -2", got.Text())
	seen := map[string]string{}
	for _, f := range got.Files {
		reason := ""
		if f.DiffReason != nil {
			reason = *f.DiffReason
			require.Empty(t, f.Diff)
		}
		seen[strings.TrimPrefix(f.Path, prefix)] = strings.TrimSpace(f.Status + " " + reason)
	}
	require.Equal(t, map[string]string{
		"outputs/deep/new.md": "created", "outputs/edited.txt": "modified", "outputs/gone.txt": "deleted", "workspace/.env": "modified sensitive", "workspace/a.bin": "modified binary",
		"workspace/image.png": "modified binary", "workspace/big.txt": "modified large", "workspace/empty.txt": "created", "workspace/replaced": "symlink_created symlink",
	}, seen)
	require.Equal(t, "--- a/mnt/user-data/outputs/edited.txt\n+++ b/mnt/user-data/outputs/edited.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three", got.Files[1].Diff)
	require.Equal(t, []string{prefix + "outputs/deep/new.md", prefix + "outputs/edited.txt"}, Produced(before, take(t, dir, Defaults)))
}

// Beyond the limits something is left out, and the summary says so.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "outputs/a.txt", "")
	limits := Limits{Files: 3, Scanned: 20, FileBytes: 1000, DiffBytes: 200}
	before := take(t, dir, limits)
	for n := range 10 {
		write(t, dir, fmt.Sprintf("outputs/%d.txt", n), strings.Repeat("line\n", 10))
	}
	got := Compare(before, take(t, dir, limits), limits)
	require.Equal(t, 10, got.Summary.Created)
	require.True(t, got.Summary.Truncated)
	require.Len(t, got.Files, 3)
	require.NotEmpty(t, got.Files[0].Diff)
	require.True(t, got.Files[2].DiffTruncated)

	// Files that one of the snapshots had no room for are not reported as new or deleted.
	for n := range 100 {
		write(t, dir, fmt.Sprintf("outputs/more/%d.txt", n), "x")
	}
	after := take(t, dir, limits)
	require.True(t, after.truncated)
	got = Compare(after, take(t, dir, limits), limits)
	require.Nil(t, got)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Take(ctx, dir, limits)
	require.ErrorIs(t, err, context.Canceled)
}
