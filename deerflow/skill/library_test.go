package skill

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of skills with one name a user's comes before the deployment's, and in one folder the one whose path is last, as in DeerFlow. The log names both, once.
func TestSkillsOfOneName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(at string) {
		at = filepath.Join(dir, at)
		require.NoError(t, os.MkdirAll(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, File), []byte("---\nname: tea\ndescription: Makes tea.\n---\n"), 0o600))
	}
	var log bytes.Buffer
	l := &Library{
		Root: func() (string, error) { return filepath.Join(dir, "skills"), nil }, User: func(user string) string { return filepath.Join(dir, user) },
		Enabled: func(string, *Skill) (bool, error) { return true, nil }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	used := func(user string) string {
		var all []*Skill
		for range 2 { // the second time everything is known
			var err error
			all, err = l.List(user)
			require.NoError(t, err)
			require.Len(t, all, 1)
		}
		at, err := filepath.Rel(dir, all[0].Dir)
		require.NoError(t, err)
		return filepath.ToSlash(at)
	}
	names := func() (pairs []string) {
		for line := range strings.Lines(log.String()) {
			_, line, _ = strings.Cut(strings.ReplaceAll(line, dir+string(filepath.Separator), ""), "used=")
			line, _, _ = strings.Cut(line, " fix=")
			pairs = append(pairs, line)
		}
		log.Reset()
		return pairs
	}
	for _, step := range []struct {
		add, want string
		warnings  []string
	}{
		{"skills/custom/tea", "skills/custom/tea", nil},
		{"skills/public/a/b/tea", "skills/public/a/b/tea", []string{"skills/public/a/b/tea left_out=skills/custom/tea"}},
		{"skills/public/a!", "skills/public/a!", []string{"skills/public/a! left_out=skills/public/a/b/tea", "skills/public/a! left_out=skills/custom/tea"}},
		{"skills/public/Z", "skills/public/a!", []string{"skills/public/a! left_out=skills/public/Z"}},
		{"u/tea", "u/tea", []string{"u/tea left_out=skills/public/a!", "u/tea left_out=skills/custom/tea"}},
	} {
		write(step.add)
		require.Equal(t, step.want, used("u"), step.add)
		require.Equal(t, step.warnings, names(), step.add)
	}
	require.Equal(t, "skills/public/a!", used("v")) // whose log lines there were
	require.Empty(t, names())
	for range 10 { // users do not make each other's warnings news
		used("u")
		used("v")
	}
	require.Empty(t, names())
	scan := Scanner(filepath.Join(dir, "skills", "public"), slog.New(slog.DiscardHandler))
	require.Equal(t, filepath.Join(dir, "skills/public/a!"), scan()[0].Dir)
}
