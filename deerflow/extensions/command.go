package extensions

import (
	"slices"
	"strings"

	"understudy/internal/fault"
)

// Programs that start an MCP server by the name of its package.
var launchers = map[string]struct {
	flags map[string]bool // options without a value, before the package
	runs  []string        // options that run what they are given
}{
	// An unknown option of npx is taken to have a value, so that none can hide one that runs a command.
	"npx": {
		options("-y --yes --no -q --quiet --offline --prefer-offline --prefer-online --no-install --ignore-existing --silent -s --verbose -d --json --workspaces -ws --force -f"),
		[]string{"-c", "--call", "-e", "--eval", "--print", "--shell", "--node-arg", "--node-options", "--script-shell"},
	},
	"uvx": {
		options("-q --quiet -v --verbose --isolated --offline --no-cache -n --refresh --reinstall -U --native-tls --no-progress --no-config --no-index --no-sources"),
		[]string{"--eval", "--call", "--shell"},
	},
}

// runsCode are options by which an interpreter runs what it is given.
var runsCode = []string{"-c", "--call", "-e", "--eval", "-p", "--print", "--shell", "--node-arg", "--node-options", "-r", "--require", "--import", "-m"}

// injects are variables that make a program load code before it starts.
var injects = []string{
	"NODE_OPTIONS", "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "BASH_ENV", "ENV", "RUBYOPT", "PERL5OPT", "PERL5LIB", "JAVA_TOOL_OPTIONS",
}

func options(s string) map[string]bool {
	set := map[string]bool{}
	for _, o := range strings.Fields(s) {
		set[o] = true
	}
	return set
}

// check refuses a server that would let its configuration run any command. It is a fence against mistakes and stolen browser sessions: an
// administrator may still name a package with any content.
func (s *server) check(name string, allowed []string) error {
	kind := s.Type
	if kind == "" {
		kind = "stdio"
	}
	switch kind {
	case "http", "sse", "streamable_http", "streamable-http":
		return nil
	case "stdio":
	default:
		return fault.Newf(fault.Unprocessable, "MCP server '%s' has the unknown type '%s'", name, kind)
	}
	command := ""
	if s.Command != nil {
		command = *s.Command
	}
	_, known := launchers[command]
	if command == "" || strings.ContainsAny(command, " \t/\\;|&`$<>\r\n") || !known && !slices.Contains(allowed, command) {
		return fault.Newf(fault.Invalid, "MCP server '%s' has the command '%s', which is not allowed. Allowed are npx, uvx, and what DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST names.", name, command)
	}
	for _, key := range injects {
		for have := range s.Env {
			if strings.EqualFold(have, key) {
				return fault.Newf(fault.Invalid, "MCP server '%s' sets the variable '%s', which loads code into the program", name, have)
			}
		}
	}
	if arg := runs(command, s.Args); arg != "" {
		return fault.Newf(fault.Invalid, "MCP server '%s' has the argument '%s', which runs a command", name, arg)
	}
	return nil
}

// runs returns the first argument that makes a program run what it is given; "" when there is none.
func runs(command string, args []string) string {
	l, known := launchers[command]
	if !known {
		for _, a := range args {
			flag, _, _ := strings.Cut(a, "=")
			if slices.Contains(runsCode, flag) || isCluster(a) {
				return a
			}
		}
		return ""
	}
	for i := 0; i < len(args); i++ {
		flag, _, hasValue := strings.Cut(args[i], "=")
		switch {
		case slices.Contains(l.runs, flag):
			return args[i]
		case args[i] == "--" || !strings.HasPrefix(args[i], "-"):
			return "" // the package: what follows is for the server
		case !hasValue && !l.flags[flag]:
			i++ // its value
			if command == "npx" && i < len(args) && slices.Contains(l.runs, args[i]) {
				return args[i]
			}
		}
	}
	return ""
}

// isCluster reports whether an argument holds several options of one letter, one of which runs code (perl -we).
func isCluster(arg string) bool {
	if len(arg) < 3 || arg[0] != '-' || arg[1] == '-' {
		return false
	}
	for _, c := range arg[1:] {
		if c < 'A' || c > 'z' || c > 'Z' && c < 'a' {
			return false
		}
	}
	return strings.ContainsAny(arg[1:], "cep")
}
