package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Python team installs the wheel into the environment of its graphs, and understudy dev serves them with that environment.
func TestWheel(t *testing.T) {
	t.Parallel()
	interpreter, dir := python(t), t.TempDir()
	do := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s %v\n%s", name, args, out)
		return string(out)
	}
	said := do("make", "-C", "../..", "wheel", "VERSION=v1.2.3", "DIST="+dir)
	wheels, err := filepath.Glob(filepath.Join(dir, "understudy_server-1.2.3-py3-none-manylinux*.whl"))
	require.NoError(t, err)
	require.Len(t, wheels, 1)
	require.Contains(t, said, "python -m pip install "+wheels[0]+"\n")
	venv := filepath.Join(dir, "venv")
	own := filepath.Join(venv, "bin", "python")
	do(interpreter, "-m", "venv", venv)
	do(own, "-m", "pip", "install", "--quiet", "--no-index", wheels[0])
	require.Contains(t, do(own, "-m", "pip", "show", "--files", "understudy-server"), "Version: 1.2.3\n")
	server := filepath.Join(venv, "bin", "understudy")
	require.Equal(t, "understudy v1.2.3\n", do(server, "--version"))

	// langgraph comes from the environment of the tests.
	packages := strings.TrimSpace(do(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
	site := strings.TrimSpace(do(own, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
	require.NoError(t, os.WriteFile(filepath.Join(site, "tests.pth"), []byte(packages), 0o600))
	project := filepath.Join(dir, "project")
	do(server, "init", project, "--template", "python")
	agent := filepath.Join(project, "agent.py")
	text, err := os.ReadFile(agent)
	require.NoError(t, err)
	const line = `f"That was {state['words']} words."`
	require.Contains(t, string(text), line)
	text = []byte(strings.Replace(string(text), line, `__import__("sys").prefix`, 1))
	require.NoError(t, os.WriteFile(agent, text, 0o600))
	env := []string{"HOME=" + dir, "PATH=/usr/bin:/bin"} // the environment is not active
	url, _ := program(t, project, server, env, "dev", "--port", "0", "--workers", "1", "--reload=false")
	require.Contains(t, do(server, "chat", "--url", url, "--message", "hello"), venv)
	do(own, "-m", "pip", "uninstall", "--quiet", "--yes", "understudy-server")
	require.NoFileExists(t, server)
}
