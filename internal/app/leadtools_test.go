package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent/providertest"
)

// Commands are refused from the first one on after the settings became stricter than the sandbox that was opened, and run again when they are as before.
func TestSandboxSettingsThatChange(t *testing.T) {
	t.Parallel()
	const before = "sandbox: {allow_host_bash: true, confine: off}\n"
	edits := []struct{ sandbox, want, log string }{
		{before, "ran", ""},
		{"sandbox: {allow_host_bash: true, confine: required}\n", "sandbox.confine of config.yaml changed after the server started; restart the server to apply it", "stricter=[sandbox.confine]"},
		{"sandbox: {allow_host_bash: true, confine: off, use: 'deerflow.community.aio_sandbox:AioSandboxProvider'}\n", "sandbox.use of config.yaml changed", "stricter=[sandbox.use]"},
		{"sandbox: {allow_host_bash: true, confine: off, use: 'deerflow.foo:Bar'}\n", "sandbox.use of config.yaml changed", "stricter=[sandbox.use]"},
		{"sandbox: {allow_host_bash: true, confine: off, readable_paths: [/x]}\n", "ran", "settings of the sandbox apply after a restart only"},
		{before, "ran", ""},
	}
	var script []providertest.Reply
	for range edits {
		script = append(script, calling("a", "bash", `{"command":"echo ran"}`), providertest.Answer("done"))
	}
	w := serveLead(t, off+before, nil, script...)
	file := filepath.Join(w.config, "config.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, edit := range edits {
		w.begin()
		logged := len(w.log.String())
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), before, edit.sandbox, 1)), 0o600))
		results := w.turn("go", `{}`).messages("tool")
		require.Len(t, results, 1)
		require.Contains(t, results[0].Get("content").Str, edit.want, edit.sandbox)
		require.Contains(t, w.log.String()[logged:], edit.log, edit.sandbox)
		if edit.want != "ran" {
			require.NotContains(t, results[0].Get("content").Str, "ran\n")
		}
	}
}

// The log does not advise to let commands run on the server where containers are configured, and cannot be had.
func TestBashWithoutContainers(t *testing.T) {
	t.Parallel()
	for use, want := range map[string]string{
		"deerflow.community.aio_sandbox:AioSandboxProvider": "containers are configured, and none can be started",
		"deerflow.foo:Bar": "sandbox.use of config.yaml, deerflow.foo:Bar, is not known here",
	} {
		w := serveLead(t, off+"sandbox: {use: '"+use+"', memory: none}\n", nil)
		require.Contains(t, w.log.String(), `msg="a tool of config.yaml is left out" tool=bash`)
		require.Contains(t, w.log.String(), `reason="`+want)
		require.NotContains(t, w.log.String(), "allow_host_bash")
	}
}

// Keys of config.yaml that are not known are in the log, once for each version of the file.
func TestUnknownKeysOfSettings(t *testing.T) {
	t.Parallel()
	w := serveLead(t, off+"uplaods: {max_files: 1}\nlog_level: info\n", nil, providertest.Answer("done"), providertest.Answer("done"))
	w.turn("go", `{}`)
	w.turn("again", `{}`)
	const problem = `uplaods: unknown key, which has no effect; did you mean \"uploads\"?`
	require.Equal(t, 1, strings.Count(w.log.String(), problem))
	require.NotContains(t, w.log.String(), "log_level: unknown key") // it is DeerFlow's
}
