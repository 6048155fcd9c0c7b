package style

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plain are phrases that comments, strings and pages avoid, with what the field says instead.
var plain = []struct{ avoid, say string }{
	{`told|tells|telling`, "report, return, notify, log, known"},
	{`whoever`, "the caller, a client that"},
	{`nobody|somebody`, "name who it is, or use the passive"},
	{`go(?:es)? on|went on`, "continue, resume"},
	{`(?:is|are|was|were) asked for`, "requested"},
	{`at hand`, "current"},
	{`mends?|mended`, "fix, repair"},
	{`beside`, "next to, in addition to, except"},
}

var avoided = func() *regexp.Regexp {
	var all []string
	for _, p := range plain {
		all = append(all, `(`+p.avoid+`)`)
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
}()

// unplain returns an avoided phrase of a text, and what to say instead.
func unplain(text string) (found, say string) {
	m := avoided.FindStringSubmatch(text)
	for i, p := range plain {
		if m != nil && m[i+1] != "" {
			return m[0], p.say
		}
	}
	return "", ""
}

// checked are code and the pages that people read; docs/performance.md has tables that the load tools of bench write, and those are modules of their own.
var checked = regexp.MustCompile(`(\.go|^docs/.*|README\.md|^CONTRIBUTING\.md)$`)

// code is what pages quote.
var code = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]+`")

func TestPlainEnglish(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.go", "*.md")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		at := filepath.Join(root(t), name)
		if !checked.MatchString(name) || strings.HasPrefix(name, "bench/") || name == "docs/performance.md" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(at)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		if !avoided.Match(text) {
			continue
		}
		if strings.HasSuffix(name, ".md") {
			for i, line := range strings.Split(code.ReplaceAllStringFunc(string(text), func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }), "\n") {
				if word, say := unplain(line); word != "" {
					t.Errorf("%s:%d: avoid %q; say: %s", name, i+1, word, say)
				}
			}
			continue
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, at, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		check := func(at token.Pos, text string) {
			if word, say := unplain(text); word != "" {
				t.Errorf("%s:%d: avoid %q; say: %s", name, files.Position(at).Line, word, say)
			}
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				check(c.Pos(), c.Text)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && strings.Contains(s.Value, " ") && !strings.HasPrefix(s.Value, "`json:") { // a single word is a value
				check(s.Pos(), s.Value)
			}
			return true
		})
	}
}

func TestUnplain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"// The run continues.": "", "the clients of the graph": "", "a foregone conclusion": "", "it gives up": "",
		"// The run goes on.": "goes on", "Nobody waits": "Nobody", "what was asked for": "was asked for", "as he is told": "told",
	} {
		found, _ := unplain(text)
		require.Equal(t, want, found, text)
	}
}
