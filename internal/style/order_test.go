package style

import (
	"regexp"
	"slices"
	"testing"
)

// order are the packages of each name of layers that has several, from top to bottom: one may import those of later rows only.
// Packages for tests are left out; those of internal that are missing belong to its last row.
var order = map[string][][]string{
	"internal/app": {
		{"internal/app", "internal/app/moving"},
		{"internal/app/doctor"},
		{"internal/app/backend"},
		{"internal/app/advice", "internal/app/graphs"},
	},
	"server": {
		{"server/guard"},
		{"server"},
		{"server/deerflow/gateway"},
		{"server/a2a/tasks", "server/deerflow", "server/internal/web", "server/mcp"},
		{"server/a2a", "server/internal/connection", "server/openai"},
		{"server/answer"},
	},
	"run": {
		{"run/service"},
		{"run/queue"},
		{"run/execute"},
		{"run/compose", "run/cron", "run/settle", "run/stream"},
		{"run/completion", "run/crash", "run/protocol", "run/signals", "run/spans"},
		{"run/usage"},
		{"run"},
		{"run/clock", "run/slots", "run/webhook"},
	},
	"thread": {
		{"thread/changes"},
		{"thread"},
		{"thread/partial", "thread/search"},
	},
	"deerflow": {
		{"deerflow", "deerflow/journal", "deerflow/lead", "deerflow/markdown"},
		{"deerflow/extensions", "deerflow/tool"},
		{
			"deerflow/account", "deerflow/acp", "deerflow/agent", "deerflow/changes", "deerflow/client", "deerflow/files", "deerflow/memory", "deerflow/sandbox", "deerflow/settings",
			"deerflow/skill",
		},
	},
	"proxy":  {{"proxy/record"}, {"proxy"}},
	"auth":   {{"auth/signin"}, {"auth"}},
	"access": {{"access", "access/audit"}},
	"graph": {
		{"graph/agent/mcp", "graph/agent/middleware", "graph/agent/provider"},
		{"graph/agent"},
		{"graph/agent/anthropic", "graph/agent/openai", "graph/agent/scripted"},
		{"graph/agent/internal/callids", "graph/agent/internal/wire"},
		{"graph/agent/llm", "graph/pregel", "graph/python", "graph/remote"},
		{"graph", "graph/message"},
	},
	"eventstore": {
		{"eventstore/mirror", "eventstore/readmodel"},
		{"eventstore/follow"},
		{"eventstore"},
		{"eventstore/judge"},
	},
	"bridge": {{"bridge/redis"}, {"bridge"}},
	"storage": {
		{"storage/postgres", "storage/sqlite"},
		{"storage/deerflow", "storage/internal/relational", "storage/langgraph"},
		{"storage/internal/measure", "storage/internal/progress", "storage/internal/seal", "storage/internal/vectors"},
		{"storage/internal/rows"},
	},
	"internal": {
		{
			"internal/child", "internal/compact", "internal/components", "internal/encryption", "internal/fleet", "internal/idempotency", "internal/limits", "internal/pytext", "internal/scanlimit",
			"internal/sweep",
		},
		{"internal/jsonplus", "internal/diskspace"},
		{},
	},
}

// testHelper are packages for tests.
var testHelper = regexp.MustCompile(`(test|twin)(/|$)`)

// row returns the row of a package in the order of a tree; false when it has none.
func row(tree, path string) (int, bool) {
	i := slices.IndexFunc(order[tree], func(names []string) bool { return slices.Contains(names, path) })
	if i < 0 && tree == "internal" {
		return len(order[tree]) - 1, true
	}
	return i, i >= 0
}

// tree returns the name under which a package stands in layers or sides.
func tree(path string) string {
	if name, ok := side(path); ok {
		return name
	}
	_, name := place(path)
	return name
}

// ordered reports whether one package of a tree may import another, and if not, why.
func ordered(tree, from, to string) (bool, string) {
	above, ok := row(tree, from)
	if !ok {
		return false, from + " has no row in the order of " + tree + "; give it one in internal/style"
	}
	below, ok := row(tree, to)
	if !ok {
		return false, to + " has no row in the order of " + tree + "; give it one in internal/style"
	}
	return below > above, "it points up or sideways within " + tree
}

func TestImportsWithinTreesPointDown(t *testing.T) {
	t.Parallel()
	all := list(t, "./...")
	known := map[string]bool{}
	for _, p := range all {
		from, _ := short(p.ImportPath)
		known[from] = true
		name := tree(from)
		if _, has := order[name]; !has || len(p.GoFiles) == 0 || testHelper.MatchString(from) {
			continue
		}
		if _, has := row(name, from); !has {
			t.Errorf("%s has no row in the order of %s; give it one in internal/style", p.ImportPath, name)
		}
		for _, path := range p.Imports {
			to, ours := short(path)
			if !ours || tree(to) != name {
				continue
			}
			if ok, why := ordered(name, from, to); !ok {
				t.Errorf("%s imports %s: %s", p.ImportPath, path, why)
			}
		}
	}
	for name, rows := range order {
		for _, path := range slices.Concat(rows...) {
			if !known[path] {
				t.Errorf("the order of %s has %s, which does not exist", name, path)
			}
		}
	}
}

func TestOrdered(t *testing.T) {
	t.Parallel()
	tests := []struct {
		tree, from, to string
		want           bool
	}{
		{"run", "run/service", "run/queue", true},
		{"run", "run/queue", "run/service", false},
		{"run", "run/stream", "run/settle", false},
		{"run", "run/execute", "run", true},
		{"run", "run", "run/execute", false},
		{"run", "run/new", "run", false},
		{"server", "server", "server/internal/web", true},
		{"server", "server/internal/web", "server", false},
		{"storage", "storage/postgres", "storage/sqlite", false},
		{"internal", "internal/compact", "internal/jsonplus", true},
		{"internal", "internal/limits", "internal/jsonobj", true},
		{"internal", "internal/jsonobj", "internal/loop", false},
	}
	for _, tt := range tests {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			t.Parallel()
			if got, why := ordered(tt.tree, tt.from, tt.to); got != tt.want {
				t.Errorf("ordered = %v (%s), want %v", got, why, tt.want)
			}
		})
	}
}
