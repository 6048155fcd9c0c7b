package sandbox

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Risk is how dangerous a command looks.
type Risk int

const (
	Low Risk = iota
	Medium
	High // refused
)

func (r Risk) String() string { return [...]string{"low", "medium", "high"}[r] }

// Verdict is the judgement of a command. Reason says why, for the log.
type Verdict struct {
	Risk   Risk
	Reason string
}

const maxCommand = 10_000 // characters

// Audit judges a command by what it would do to this machine. Texts of here-documents are data, except for what shells read.
func Audit(command string) Verdict {
	switch {
	case strings.TrimSpace(command) == "":
		return Verdict{High, "the command is empty"}
	case len([]rune(command)) > maxCommand:
		return Verdict{High, "the command is too long"}
	case strings.ContainsRune(command, 0):
		return Verdict{High, "the command has a NUL character"}
	}
	var a auditor
	a.command(command, 0)
	return a.v
}

// auditor finds the greatest risk.
type auditor struct{ v Verdict }

func (a *auditor) found(r Risk, why string) {
	if r > a.v.Risk {
		a.v = Verdict{r, why}
	}
}

const maxNesting = 8 // of commands in texts of commands

func (a *auditor) command(command string, depth int) {
	if depth > maxNesting {
		a.found(High, "commands are nested too deeply")
		return
	}
	file, err := parse(command)
	if err != nil {
		a.found(High, "the command cannot be parsed: "+err.Error())
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Word:
			a.word(text(n))
		case *syntax.Assign:
			a.assign(n)
		case *syntax.Redirect:
			a.redirect(n)
			if n.Hdoc != nil { // its body is data
				syntax.Walk(n.Hdoc, func(m syntax.Node) bool {
					if c, ok := m.(*syntax.CallExpr); ok {
						a.call(c, depth)
					}
					return true
				})
				return false
			}
		case *syntax.CallExpr:
			a.call(n, depth)
		case *syntax.BinaryCmd:
			a.pipe(n)
		case *syntax.FuncDecl:
			a.bomb(n)
		case *syntax.Stmt:
			a.fed(n, depth)
		}
		return true
	})
}

var secrets = regexp.MustCompile(`/proc/[^/ ]*/(environ|mem|maps|root|cwd|fd)\b|/etc/g?shadow|/dev/(tcp|udp)/`)

func (a *auditor) word(v string) {
	if m := secrets.FindString(v); m != "" {
		a.found(High, "it reaches for "+m)
	}
}

func (a *auditor) assign(n *syntax.Assign) {
	if n.Name == nil {
		return
	}
	switch name := n.Name.Value; {
	case strings.HasPrefix(name, "LD_"), strings.HasPrefix(name, "DYLD_"), name == "BASH_ENV", name == "ENV", name == "PROMPT_COMMAND":
		a.found(High, "it sets "+name)
	case name == "PATH":
		a.found(Medium, "it sets PATH")
	}
}

var (
	profiles = names(".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zprofile .zshenv .kshrc")
	guarded  = []string{"/etc", "/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/boot", "/lib", "/usr/lib"}
)

// guard judges a file that is written.
func (a *auditor) guard(p string) {
	if profiles[base(p)] {
		a.found(High, "it writes to a shell's profile")
	}
	for _, g := range guarded {
		if _, ok := within(g, path.Clean(p)); ok && strings.HasPrefix(p, "/") {
			a.found(High, "it writes to "+g)
		}
	}
}

func (a *auditor) redirect(r *syntax.Redirect) {
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut:
		a.guard(text(r.Word))
	}
}

// fed judges texts that a shell reads from a here-document or a here-string.
func (a *auditor) fed(s *syntax.Stmt, depth int) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || !slices.ContainsFunc(calls(c), func(c call) bool { return shells[c.name] }) {
		return
	}
	for _, r := range s.Redirs {
		switch {
		case r.Hdoc != nil:
			a.command(strings.ReplaceAll(text(r.Hdoc), dynamic, "x"), depth+1)
		case r.Op == syntax.WordHdoc:
			a.command(strings.ReplaceAll(text(r.Word), dynamic, "x"), depth+1)
		}
	}
}

// pipe judges what feeds a shell.
func (a *auditor) pipe(b *syntax.BinaryCmd) {
	if b.Op != syntax.Pipe && b.Op != syntax.PipeAll {
		return
	}
	for _, c := range first(b.Y.Cmd) {
		if shells[c.name] && len(c.inner()) == 0 {
			a.found(High, "it pipes into a shell")
		}
	}
	for _, c := range last(b.X.Cmd) {
		if c.name == "base64" && slices.ContainsFunc(c.args, func(s string) bool { return s == "-d" || s == "-D" || s == "--decode" }) {
			a.found(High, "it pipes decoded base64 into a command")
		}
	}
}

// first and last are the simple commands at the ends of a pipeline.
func first(c syntax.Command) []call {
	switch c := c.(type) {
	case *syntax.CallExpr:
		return calls(c)
	case *syntax.BinaryCmd:
		return first(c.X.Cmd)
	case *syntax.Subshell:
		return firstOf(c.Stmts)
	case *syntax.Block:
		return firstOf(c.Stmts)
	}
	return nil
}

func firstOf(list []*syntax.Stmt) (out []call) {
	for _, s := range list {
		out = append(out, first(s.Cmd)...)
	}
	return out
}

func last(c syntax.Command) []call {
	switch c := c.(type) {
	case *syntax.CallExpr:
		return calls(c)
	case *syntax.BinaryCmd:
		return last(c.Y.Cmd)
	}
	return nil
}

// bomb finds functions that start themselves in a pipe or in the background.
func (a *auditor) bomb(f *syntax.FuncDecl) {
	if f.Name == nil {
		return
	}
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		s, ok := n.(*syntax.Stmt)
		if !ok {
			return true
		}
		pipe, isPipe := s.Cmd.(*syntax.BinaryCmd)
		if s.Background || isPipe && (pipe.Op == syntax.Pipe || pipe.Op == syntax.PipeAll) {
			syntax.Walk(s, func(n syntax.Node) bool {
				if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 && text(c.Args[0]) == f.Name.Value {
					a.found(High, "it is a fork bomb")
				}
				return true
			})
		}
		return true
	})
}

func (a *auditor) call(n *syntax.CallExpr, depth int) {
	if len(n.Args) == 0 {
		return
	}
	if runs(n.Args[0]) { // what a program prints is run
		a.found(High, "it runs what a program prints")
	}
	for _, c := range calls(n) {
		a.one(c)
		if len(c.inner()) > 0 {
			if slices.ContainsFunc(n.Args, runs) {
				a.found(High, "a shell runs what a program prints")
			}
			for _, command := range c.inner() {
				a.command(strings.ReplaceAll(command, dynamic, "x"), depth+1)
			}
		}
	}
}

// runs reports whether a word has a substitution that starts a downloader, a shell or an interpreter.
func runs(w *syntax.Word) bool {
	found := false
	syntax.Walk(w, func(n syntax.Node) bool {
		if s, ok := n.(*syntax.CmdSubst); ok {
			for _, stmt := range s.Stmts {
				for _, c := range first(stmt.Cmd) {
					found = found || c.name == "curl" || c.name == "wget" || shells[c.name] || interpreters[c.name] || c.name == "base64"
				}
			}
		}
		return true
	})
	return found
}

// whole are folders that no command deletes.
var whole = names("~ /home /root /etc /usr /var /bin /sbin /lib /boot /opt")

// deletesAll reports whether a path is one of them, or what is in it.
func deletesAll(p string) bool {
	p = strings.TrimSuffix(p, "*")
	folder := strings.TrimRight(p, "/")
	return p != "" && folder == "" || whole[folder]
}

func (a *auditor) one(c call) {
	has := func(wanted ...string) bool {
		return slices.ContainsFunc(c.args, func(s string) bool { return slices.Contains(wanted, s) })
	}
	flag := func(letters, long string) bool {
		return slices.ContainsFunc(c.args, func(s string) bool {
			return s == long || len(s) > 1 && s[0] == '-' && s[1] != '-' && strings.ContainsAny(s, letters)
		})
	}
	switch {
	case c.name == "rm" && flag("rR", "--recursive") && slices.ContainsFunc(c.args, deletesAll):
		a.found(High, "it deletes the machine's files")
	case c.name == "dd" && slices.ContainsFunc(c.args, func(s string) bool { return strings.HasPrefix(s, "if=") }):
		a.found(High, "it copies devices")
	case strings.HasPrefix(c.name, "mkfs"):
		a.found(High, "it formats a disk")
	case c.name == "tee" || c.name == "cp" || c.name == "mv" || c.name == "install" || c.name == "ln":
		for i, s := range c.args {
			if c.name == "tee" || i == len(c.args)-1 {
				a.guard(s)
			}
		}
	case c.name == "chmod" && has("777", "a+rwx", "0777"):
		a.found(Medium, "it opens files to everybody")
	case (c.name == "pip" || c.name == "pip3" || c.name == "apt" || c.name == "apt-get" || c.name == "npm") && has("install"):
		a.found(Medium, "it installs packages")
	case interpreters[c.name] && has("pip") && has("install"):
		a.found(Medium, "it installs packages")
	case c.name == "sudo" || c.name == "su" || c.name == "doas":
		a.found(Medium, "it changes the user")
	}
	for _, s := range c.args {
		if strings.HasPrefix(s, "LD_PRELOAD=") || strings.HasPrefix(s, "LD_LIBRARY_PATH=") {
			a.found(High, "it sets LD_PRELOAD")
		}
	}
}
