package python

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"understudy/graph"
	"understudy/internal/names"
)

// Plain returns the error of a graph for its operator, in one line: with the text that clients do not get, if it is in the traceback.
func Plain(err error) string {
	var f *graph.Failure
	if !errors.As(err, &f) || f.Message != graph.Masked || f.Detail == "" {
		return err.Error()
	}
	for line := range strings.SplitSeq(lastException(f.Detail), "\n") {
		if line != "" && !strings.HasPrefix(line, " ") { // what follows the frame
			return strings.Replace(err.Error(), f.Error(), line, 1)
		}
	}
	return err.Error()
}

// lastException returns the last frame of a traceback, which raised its last exception, and that exception. Its own lines may be indented.
func lastException(traceback string) string {
	return traceback[max(0, strings.LastIndex(traceback, "\n  File ")):]
}

// Innermost returns file and line of the innermost frame of a traceback that is in one of dirs, which are absolute, and not in an installed package; "" when there is none.
func Innermost(traceback string, dirs []string) (file, line string) {
	for text := range strings.SplitSeq(traceback, "\n") {
		if at, number, ok := frameIn(text, dirs); ok {
			file, line = at, number
		}
	}
	return file, line
}

// Place is "file:line" of Innermost, as seen from the first of dirs; "" when there is none.
func Place(traceback string, dirs []string) string {
	file, line := Innermost(traceback, dirs)
	if file == "" {
		return ""
	}
	return names.From(dirs[0], file) + ":" + line
}

// frameIn returns file and line of a frame in one of dirs; text is the line of a traceback.
func frameIn(text string, dirs []string) (file, line string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), `File "`)
	if !ok {
		return "", "", false
	}
	file, rest, ok = strings.Cut(rest, `", line `)
	if !ok || !IsOwn(file, dirs) {
		return "", "", false
	}
	line, _, _ = strings.Cut(rest, ",")
	return file, line, true
}

// IsOwn reports whether a file is in one of dirs, which are absolute, or empty for none, and not in an installed package.
func IsOwn(file string, dirs []string) bool {
	return !isInstalled(file) && slices.ContainsFunc(dirs, func(dir string) bool { return dir != "" && strings.HasPrefix(file, dir+string(filepath.Separator)) })
}

func isInstalled(file string) bool {
	return strings.Contains(file, "site-packages") || strings.Contains(file, "dist-packages")
}

// Excerpt returns the last n lines of a traceback, without the frames that Python and the worker need to import a module. When the innermost frame in one of dirs, which are
// those of the user, is further up, it stands first in place of others.
func Excerpt(traceback string, n int, dirs []string) []string {
	var lines, own []string
	skip, inOwn := false, false
	at := -1 // where own begins in lines
	for line := range strings.SplitSeq(traceback, "\n") {
		switch file, isFrame := strings.CutPrefix(line, `  File "`); {
		case isFrame:
			skip = strings.HasPrefix(file, "<") || strings.Contains(filepath.ToSlash(file), "/importlib/")
			if _, _, inOwn = frameIn(line, dirs); inOwn {
				own, at = nil, len(lines)
			}
		case !strings.HasPrefix(line, "  "):
			skip, inOwn = false, false // no longer the code of a frame
		}
		if !skip && strings.TrimSpace(line) != "" {
			lines = append(lines, line)
			if inOwn {
				own = append(own, line)
			}
		}
	}
	from := max(0, len(lines)-n)
	if at < 0 || at >= from {
		return lines[from:]
	}
	own = own[:min(len(own), n/2)]
	return append(append(own, "  …"), lines[max(at+len(own), len(lines)-max(1, n-len(own)-1)):]...)
}
