package sandbox

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// system are folders and files besides the thread's own that commands may name.
var system = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/dev/tty"}

// fileCommands take paths: "/" among their arguments is the whole machine.
var fileCommands = names("awk cat cp du find grep head less ln ls more mv rm sed tail tar chmod chown rsync tree")

const usePaths = "Use paths under " + UserData

// check refuses commands whose words name paths outside of the thread's folders. The rules judge text: what a program computes they cannot see.
func (t *Thread) check(command string) error { return t.checkNested(command, 0) }

func (t *Thread) checkNested(command string, depth int) error {
	if depth > maxNesting {
		return denied("The command cannot be checked: commands are nested too deeply")
	}
	if i := strings.Index(strings.ToLower(command), "file://"); i >= 0 {
		return denied("Unsafe absolute paths in command: %s. %s", until(command[i:]), usePaths)
	}
	file, err := parse(command)
	if err != nil {
		return denied("The command cannot be parsed: %s", err)
	}
	var unsafe []string
	var refused error
	refuse := func(err error) {
		if refused == nil {
			refused = err
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Word:
			v := text(n)
			if traverses(v) {
				refuse(ErrTraversal)
			}
			if len(v) > 1 && v[0] == '~' && v[1] != '/' {
				refuse(denied("Unsafe absolute paths in command: %s. %s", until(v), usePaths))
			}
			unsafe = append(unsafe, t.unsafe(v)...)
		case *syntax.Assign:
			if n.Name != nil && (n.Name.Value == "CDPATH" || n.Name.Value == "HOME" || n.Name.Value == "OLDPWD") {
				refuse(denied("Unsafe working directory change in command: %s. %s", n.Name.Value, usePaths))
			}
		case *syntax.CallExpr:
			for _, c := range calls(n) {
				if err := t.checkCall(c, depth); err != nil {
					refuse(err)
				}
			}
		}
		return refused == nil
	})
	switch {
	case refused != nil:
		return refused
	case len(unsafe) > 0:
		slices.Sort(unsafe)
		return denied("Unsafe absolute paths in command: %s. %s", strings.Join(slices.Compact(unsafe), ", "), usePaths)
	}
	return nil
}

func (t *Thread) checkCall(c call, depth int) error {
	if fileCommands[c.name] && slices.ContainsFunc(c.args, func(a string) bool { return a != "" && strings.Trim(a, "/") == "" }) {
		return denied("Unsafe absolute paths in command: /. %s", usePaths)
	}
	if c.name == "cd" || c.name == "pushd" {
		to := ""
		for _, a := range c.args {
			if a == "-" || !strings.HasPrefix(a, "-") {
				to = a
				break
			}
		}
		bad := to == "" || to == "-" || to[0] == '~' || strings.HasPrefix(to, dynamic) || to[0] == '/' && !t.own(to)
		if bad {
			return denied("Unsafe working directory change in command: %s. %s", strings.TrimSpace(c.name+" "+strings.ReplaceAll(to, dynamic, "$")), usePaths)
		}
	}
	for _, command := range c.inner() {
		if strings.TrimSpace(command) == "" || strings.Contains(command, dynamic) {
			continue
		}
		if err := t.checkNested(command, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// own reports whether an absolute path is one of the thread's virtual ones.
func (t *Thread) own(p string) bool {
	return slices.ContainsFunc(t.mounts, func(m *mount) bool { _, ok := within(m.Virtual, p); return ok })
}

func (t *Thread) allowed(p string) bool {
	return t.own(p) || slices.ContainsFunc(system, func(s string) bool { _, ok := within(s, p); return ok })
}

// stop ends a path in a text.
const stop = " \t\r\n\"'`;&|<>()"

func until(s string) string {
	if i := strings.IndexAny(s, stop); i > 0 {
		return s[:i]
	}
	return s
}

// relative are characters, besides those of words, behind which "/" continues a relative path. The value of a variable is taken to be no empty text.
const relative = ".~-*?]}%@+" + dynamic

// unsafe returns the absolute paths in a text that commands may not name. Paths in URLs are none.
func (t *Thread) unsafe(v string) (list []string) {
	for i := 0; i < len(v); i++ {
		if v[i] != '/' || i > 0 && (wordByte(v[i-1]) || strings.IndexByte(relative, v[i-1]) >= 0) {
			continue
		}
		p := until(v[i:])
		if i > 1 && v[i-1] == ':' && wordByte(v[i-2]) && strings.HasPrefix(p, "//") { // a URL
			i += len(p) - 1
			continue
		}
		if len(p) > 1 && !t.allowed(p) {
			list = append(list, strings.ReplaceAll(p, dynamic, "$"))
		}
		i += len(p) - 1
	}
	return list
}

// traverses reports whether a text has a path with a part "..".
func traverses(v string) bool {
	for i := 0; ; {
		j := strings.Index(v[i:], "..")
		if j < 0 {
			return false
		}
		i += j
		before := i == 0 || !wordByte(v[i-1]) && v[i-1] != '.'
		rest := v[i+2:]
		if before && (rest == "" || !wordByte(rest[0]) && rest[0] != '.') {
			return true
		}
		for i < len(v) && v[i] == '.' {
			i++
		}
	}
}
