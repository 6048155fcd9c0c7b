package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each case is a package whose tests do what its body says.
func TestRetest(t *testing.T) {
	t.Parallel()
	once := func(how string) string {
		return `{ if _, err := os.Stat(t.Name()); err != nil { os.WriteFile(t.Name(), nil, 0o600); ` + how + ` } }`
	}
	const not = `t.Fatal("not yet")`
	for name, c := range map[string]struct {
		body string
		code int
		want string // in the report
	}{
		"passes":              {`func TestA(t *testing.T) { os.Getpid() }`, 0, ""},
		"fails once":          {`func TestA(t *testing.T) ` + once(not) + `; func TestB(t *testing.T) {}`, 0, "unstable: TestA of example/p failed once and passed alone\n"},
		"fails once below":    {`func TestA(t *testing.T) { t.Run("x", func(t *testing.T) ` + strings.ReplaceAll(once(not), "t.Name()", `"x"`) + `) }`, 0, "unstable: TestA of example/p failed once and passed alone\n"},
		"fails":               {`func TestA(t *testing.T) { os.Getpid(); t.Fatal("no") }`, 1, ""},
		"one of two fails":    {`func TestA(t *testing.T) ` + once(not) + `; func TestB(t *testing.T) { t.Fatal("no") }`, 1, ""},
		"panics once":         {`func TestA(t *testing.T) ` + once(`panic("no")`), 1, ""},
		"many fail once":      {`func TestA(t *testing.T) ` + once(not) + `; func TestB(t *testing.T) ` + once(not) + `; func TestC(t *testing.T) ` + once(not) + `; func TestD(t *testing.T) ` + once(not), 1, ""},
		"does not build":      {`func TestA(t *testing.T) { x }`, 1, ""},
		"fails outside":       {`func TestMain(m *testing.M) { m.Run(); os.Exit(1) }; func TestA(t *testing.T) {}`, 1, ""},
		"prints a long line":  {`func TestA(t *testing.T) { print(strings.Repeat("x", 1<<20), "\n"); ` + once(not) + ` }`, 0, "unstable: TestA of example/p failed once and passed alone\n"},
		"similar names apart": {`func TestA(t *testing.T) ` + once(not) + `; func TestAB(t *testing.T) { if _, err := os.Stat("ab"); err == nil { t.Fatal("repeated too") }; os.WriteFile("ab", nil, 0o600) }`, 0, "unstable: TestA of example/p failed once and passed alone\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":      "module example\ngo 1.25\n",
				"p/p_test.go": "package p\nimport (\"os\"; \"strings\"; \"testing\")\nvar _, _ = os.Getpid, strings.Repeat\n" + c.body + "\n",
			} {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			var out bytes.Buffer
			report := filepath.Join(dir, "report")
			require.Equal(t, c.code, run(t.Context(), []string{"-C=" + dir, "-vet=off", "./..."}, &out, report), "%s", &out)
			got, err := os.ReadFile(report) //nolint:gosec // a file of the test
			if c.want == "" {
				require.ErrorIs(t, err, os.ErrNotExist)
			}
			require.Equal(t, c.want, string(got), "%s", &out)
		})
	}
}
