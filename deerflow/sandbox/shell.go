package sandbox

import (
	"errors"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// dynamic stands in the text of a word for what is known only when the command runs.
const dynamic = "\x00"

// text returns the value of a word, quotes and backslashes taken away, as far as it is known before the command runs.
func text(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range w.Parts {
		part(&b, p, false)
	}
	return b.String()
}

func part(b *strings.Builder, p syntax.WordPart, quoted bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		unescape(b, p.Value, quoted)
	case *syntax.SglQuoted:
		if p.Dollar {
			b.WriteString(ansi(p.Value))
			return
		}
		b.WriteString(p.Value)
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			part(b, q, true)
		}
	case *syntax.ExtGlob:
		b.WriteString(p.Op.String() + p.Pattern.Value + ")")
	default:
		b.WriteString(dynamic)
	}
}

// unescape takes away backslashes as the shell does, outside of quotes or in double ones.
func unescape(b *strings.Builder, lit string, quoted bool) {
	for i := 0; i < len(lit); i++ {
		if lit[i] != '\\' || i+1 == len(lit) {
			b.WriteByte(lit[i])
			continue
		}
		i++
		switch {
		case lit[i] == '\n':
		case quoted && !strings.ContainsRune("$`\"\\", rune(lit[i])):
			b.WriteByte('\\')
			b.WriteByte(lit[i])
		default:
			b.WriteByte(lit[i])
		}
	}
}

// ansi returns the value of $'...'; an escape that has a number counts as unknown.
func ansi(v string) string {
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' || i+1 == len(v) {
			b.WriteByte(v[i])
			continue
		}
		i++
		switch v[i] {
		case 'n', 't', 'r', 'a', 'b', 'e', 'E', 'f', 'v':
			b.WriteByte(' ')
		case 'x', 'u', 'U', 'c', '0', '1', '2', '3', '4', '5', '6', '7':
			b.WriteString(dynamic)
		default:
			b.WriteByte(v[i])
		}
	}
	return b.String()
}

// maxDepth bounds how deeply a command's parts are nested: judging takes longer the deeper they are.
const maxDepth = 400

var errDepth = errors.New("its parts are nested too deeply")

// parse reads a command as bash does.
func parse(command string) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		return nil, err
	}
	depth, most := 0, 0
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			depth--
			return true
		}
		depth++
		most = max(most, depth)
		return true
	})
	if most > maxDepth {
		return nil, errDepth
	}
	return file, nil
}

// call is a simple command: its name without folder, and the words after it.
type call struct {
	name string
	args []string
	at   *syntax.CallExpr
}

// wrappers run the command that follows them.
var wrappers = map[string]bool{
	"command": true, "builtin": true, "exec": true, "env": true, "nohup": true, "nice": true, "time": true, "sudo": true, "doas": true, "setsid": true,
	"stdbuf": true, "timeout": true, "xargs": true, "busybox": true, "ionice": true,
}

// calls returns what a simple command runs: the command itself, and those behind wrappers such as env and sudo.
func calls(c *syntax.CallExpr) []call {
	words := make([]string, len(c.Args))
	for i, w := range c.Args {
		words[i] = text(w)
	}
	var out []call
	for len(words) > 0 {
		one := call{name: base(words[0]), args: words[1:], at: c}
		out = append(out, one)
		if !wrappers[one.name] {
			return out
		}
		words = words[1:]
		for len(words) > 0 && (strings.HasPrefix(words[0], "-") || strings.Contains(words[0], "=") || one.name == "timeout" && words[0] != "" && words[0][0] >= '0' && words[0][0] <= '9') {
			words = words[1:]
		}
	}
	return out
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// shells are programs that read commands; interpreters those that read programs.
var (
	shells       = names("sh bash dash zsh ksh ash fish")
	interpreters = names("python python2 python3 perl ruby node php lua")
)

func names(list string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(list) {
		m[n] = true
	}
	return m
}

// inner returns the commands that a call has as text: sh -c text, eval text.
func (c call) inner() (list []string) {
	switch {
	case c.name == "eval":
		return []string{strings.Join(c.args, " ")}
	case shells[c.name]:
		for i, a := range c.args {
			if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.HasSuffix(a, "c") && i+1 < len(c.args) {
				return c.args[i+1 : i+2]
			}
		}
	}
	return nil
}
