//go:build unix

package python

import (
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
)

// What a process says of its end becomes words and a next step.
func TestDeathOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script, reason string
		outOfMemory          bool
		cause, fix           string
	}{
		{"exit code", "exit 3", "", true, "it left with exit code 3", "os._exit"},
		{"exit code 0 is no error", "exit 0", "", false, "closed its connection", "file descriptors"},
		{"kernel", "kill -KILL $$", "", true, "the kernel killed it because memory ran out (SIGKILL)", "more memory"},
		{"killed", "kill -KILL $$", "", false, "it was killed (SIGKILL), as the kernel does when memory runs out", "more memory"},
		{"this server", "kill -KILL $$", "it was too large", true, "this server ended it: it was too large", "make it small"},
		{"crash before this server's kill", "kill -SEGV $$", "it was too large", false, "it crashed in native code (SIGSEGV, segmentation fault)", "PYTHONFAULTHANDLER"},
		{"abort", "kill -ABRT $$", "", false, "it crashed in native code (SIGABRT, aborted)", "PYTHONFAULTHANDLER"},
		{"terminated", "kill -TERM $$", "", false, "it was sent SIGTERM", "what sends signals"},
		{"hung up", "kill -HUP $$", "", false, "it was sent SIGHUP", "what sends signals"},
		{"any other", "kill -USR1 $$", "", false, "it crashed in native code (signal", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(tt.script, "-HUP") && signal.Ignored(syscall.SIGHUP) {
				t.Skip("SIGHUP is ignored here, as under nohup")
			}
			cause, fix := deathOf(exec.CommandContext(t.Context(), "sh", "-c", tt.script).Run(), reason{tt.reason, "make it small"}, tt.outOfMemory)
			require.Contains(t, cause, tt.cause)
			require.Contains(t, fix, tt.fix)
		})
	}
}

// The nodes that were running are those of the last checkpoint which have not ended.
func TestNodesOfADeath(t *testing.T) {
	t.Parallel()
	ended := func(ids ...string) (w []checkpointer.Write) {
		for _, id := range ids {
			w = append(w, checkpointer.Write{TaskID: id, Channel: "x"}, checkpointer.Write{TaskID: id, Channel: "y"})
		}
		return append(w, checkpointer.Write{TaskID: "4", Channel: "__interrupt__"})
	}
	const four = `[{"id":"1","name":"b"},{"id":"2","name":"a"},{"id":"3","name":"a"},{"id":"4","name":"c"}]`
	const many = `[{"id":"1","name":"1"},{"id":"2","name":"2"},{"id":"3","name":"3"},{"id":"4","name":"4"},{"id":"5","name":"5"},{"id":"6","name":"6"},{"id":"7","name":"7"}]`
	for _, tt := range []struct {
		tasks  string
		writes []checkpointer.Write
		want   string
	}{
		{"", nil, ""},
		{"[]", nil, ""},
		{`[{"id":"1","name":"__start__"}]`, nil, ""},
		{four, nil, "in or after nodes a, b, c"},
		{four, ended("1", "2"), "in or after nodes a, c"},
		{four, ended("1", "2", "3"), "in or after node c"},
		{four, ended("1", "2", "3", "4"), "after nodes a, b, c"},
		{`[{"id":"1","name":"b"}]`, ended("1"), "after node b"},
		{many, nil, "in or after nodes 1, 2, 3, 4, 5 and 2 more"},
	} {
		c := &call{}
		c.begins([]byte(tt.tasks), wrote(tt.writes))
		require.Equal(t, tt.want, c.at(), tt.tasks)
	}
	c := &call{}
	c.begins([]byte(four), nil)
	for _, step := range []struct {
		name  string
		began bool
		want  string
	}{
		{"x", true, "in node x"},
		{"y", true, "in nodes x, y"},
		{"y", true, "in nodes x, y"},
		{"y", false, "in nodes x, y"},
		{"y", false, "in node x"},
		{"z", false, "in node x"},
		{"x", false, "after node y"},
	} {
		c.node(step.name, step.began)
		require.Equal(t, step.want, c.at())
	}
}
