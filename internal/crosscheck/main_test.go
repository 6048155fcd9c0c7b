package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What compiles here and not elsewhere is found, in code, tests and files of one system, and what is right is not reported.
func TestCheck(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"go.mod":               "module example.com/m\n\ngo 1.26\n",
		"all.go":               "package m\n\nimport \"os\"\n\nfunc Pid() int { return os.Getpid() + own() }\n",
		"own_linux.go":         "package m\n\nfunc own() int { return 1 }\n",
		"own_darwin.go":        "package m\n\nfunc own() int { return 2 }\n",
		"m_test.go":            "package m_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/m\"\n)\n\nfunc TestPid(*testing.T) { _ = m.Pid() }\n",
		"size/size.go":         "package size\n\nconst Large int = 1 << 40\n",
		"calls/calls.go":       "package calls\n\nimport \"syscall\"\n\nvar Group = syscall.SysProcAttr{Setpgid: true}\n",
		"calls/calls_test.go":  "package calls\n\nimport \"syscall\"\n\nvar _ = syscall.SIGUSR1\n",
		"broken/broken.go":     "package broken\n\nfunc (\n",
		"imports/imports.go":   "package imports\n\nimport _ \"example.com/nowhere\"\n",
		"unused/unused_arm.go": "package unused\n\nimport \"os\"\n",
		"unused/unused.go":     "package unused\n",
	}
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, tt := range []struct{ target, pkg, want string }{
		{"linux/amd64", ".", ""},
		{"darwin/arm64", ".", ""},
		{"windows/amd64", ".", "undefined: own"},
		{"linux/amd64", "./size", ""},
		{"linux/arm", "./size", "(overflows)"},
		{"linux/amd64", "./calls", ""},
		{"windows/amd64", "./calls", "unknown field Setpgid"},
		{"windows/amd64", "./calls", "undefined: syscall.SIGUSR1"},
		{"linux/amd64", "./broken", "broken.go:3"},
		{"linux/amd64", "./imports", "example.com/nowhere"},
		{"linux/amd64", "./unused", ""},
		{"linux/arm", "./unused", "\"os\" imported and not used"},
		{"linux/amd64", "./missing", "missing"},
		{"linux", ".", "not \"linux\""},
		{"linux/pdp11", ".", "not \"linux/pdp11\""},
	} {
		err := check(dir, tt.target, []string{tt.pkg})
		if tt.want == "" {
			require.NoError(t, err, "%s on %s", tt.pkg, tt.target)
		} else {
			require.ErrorContains(t, err, tt.want, "%s on %s", tt.pkg, tt.target)
		}
	}
}
