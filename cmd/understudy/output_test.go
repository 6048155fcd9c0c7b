package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Output that cannot be written is an error, and a key that could not be printed is not valid. Each way of writing to a file counts.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full := func() *output {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("SKIPPED: this system has no /dev/full: %v", err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return &output{File: f}
	}
	for name, write := range map[string]func(w io.Writer){
		"bytes": func(w io.Writer) { _, _ = w.Write([]byte("a")) },
		"text":  func(w io.Writer) { _, _ = io.WriteString(w, "a") },
		"copy":  func(w io.Writer) { _, _ = io.Copy(w, strings.NewReader("a")) },
	} {
		o := full()
		write(o)
		require.Error(t, o.err, name)
	}

	data := t.TempDir()
	run := func(out io.Writer, args ...string) error {
		root := newRoot(out, io.Discard)
		root.SetArgs(append(args, "--data", data))
		return root.ExecuteContext(t.Context())
	}
	var list, key bytes.Buffer
	require.ErrorContains(t, run(full(), "keys", "create", "--name", "unseen"), "has ended")
	require.NoError(t, run(&list, "keys", "list"))
	require.NotContains(t, list.String(), "valid")
	require.Contains(t, list.String(), "expired")

	require.NoError(t, run(&key, "keys", "create", "--name", "seen"))
	list.Reset()
	require.NoError(t, run(&list, "keys", "list"))
	line := list.String()[strings.Index(list.String(), "\n")+1:]
	for _, l := range strings.Split(line, "\n") {
		if strings.Contains(l, "valid") {
			require.ErrorContains(t, run(full(), "keys", "rotate", strings.Fields(l)[0]), "has ended")
		}
	}
	list.Reset()
	require.NoError(t, run(&list, "keys", "list"))
	require.Equal(t, 1, strings.Count(list.String(), "valid"), "the old one stays: "+list.String())
}
