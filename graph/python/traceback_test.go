package python_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/python"
)

// The end of a traceback has the innermost line of the user's code, also when it ends in a library.
func TestExcerpt(t *testing.T) {
	t.Parallel()
	const head = "Traceback (most recent call last):"
	frame := func(file string) string { return "  File \"" + file + "\", line 3, in f\n    call()" }
	long := strings.Join([]string{head, frame("<understudy>/a.py"), frame("/lib/importlib/__init__.py"), frame("/app/a.py"), frame("/app/b.py"), frame("/lib/c.py"), frame("/app/site-packages/d.py"), frame("/lib/e.py"), "OSError: x"}, "\n")
	require.Equal(t, []string{`  File "/app/b.py", line 3, in f`, "    call()", "  …", `  File "/lib/e.py", line 3, in f`, "    call()", "OSError: x"}, python.Excerpt(long, 6, []string{"/app"}))
	file, line := python.Innermost(long, []string{"/app"})
	require.Equal(t, [2]string{"/app/b.py", "3"}, [2]string{file, line})
	for _, dirs := range [][]string{nil, {"/ap"}} {
		require.Equal(t, []string{"    call()", `  File "/lib/e.py", line 3, in f`, "    call()", "OSError: x"}, python.Excerpt(long, 4, dirs))
		file, _ = python.Innermost(long, dirs)
		require.Empty(t, file)
	}
	short := head + "\n" + frame("/app/a.py") + "\nOSError: x"
	require.Equal(t, strings.Split(short, "\n"), python.Excerpt(short, 6, []string{"/app"}))
	require.Empty(t, python.Excerpt("", 6, nil))
}
