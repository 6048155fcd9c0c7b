package style

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// sentenceEnd is where a line that has one sentence would be broken: what follows begins another.
	sentenceEnd = regexp.MustCompile("[^\\s.][.!?](?:\\*\\*|[)\"”_*])* [A-Z`\\[“(*]")
	// notOver is text behind which a full stop ends nothing: abbreviations, and the numbers of lists.
	notOver = regexp.MustCompile(`(?:\b(?:e\.g|i\.e|vs|etc|cf|No)|^\s*\d+|…)$`)
	// label is bold text at the begin of a line, which names what follows.
	label = regexp.MustCompile(`^\s*(?:[-*+] |\d+\. )?\*\*[^*]+\*\*$`)
	// unread are code and the targets of links.
	unread = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)")
)

// sentences reports whether a line of Markdown has more than one sentence, and where the first ends. What is in parentheses or quoted belongs to its sentence.
func sentences(line string) (end int, more bool) {
	line = unread.ReplaceAllStringFunc(line, func(s string) string { return "`" + strings.Repeat("x", len(s)-2) + "`" })
	for from := 0; ; {
		at := sentenceEnd.FindStringIndex(line[from:])
		if at == nil {
			return 0, false
		}
		stop := from + at[0] + strings.IndexAny(line[from+at[0]+1:], ".!?") + 1
		end := strings.IndexByte(line[stop:], ' ') + stop
		from = end
		before := line[:stop+1]
		open := strings.Count(before, "(") > strings.Count(before, ")") || strings.Count(before, "“") > strings.Count(before, "”")
		quote := strings.Count(before, `"`)%2 == 1 && line[end-1] != '"'
		if !open && !quote && !notOver.MatchString(line[:stop]) && !label.MatchString(line[:end]) {
			return end, true
		}
	}
}

// Changes of pages can be compared line by line because each sentence has one.
func TestOneSentencePerLine(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range append(pages, filepath.Join(root(t), "README.md"), filepath.Join(root(t), "CONTRIBUTING.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		fenced := false
		for i, line := range strings.Split(string(text), "\n") {
			begin := strings.TrimLeft(line, " ")
			if strings.HasPrefix(strings.TrimLeft(begin, "> "), "```") {
				fenced = !fenced
			}
			if fenced || begin != "" && strings.ContainsRune("|#<!>", rune(begin[0])) {
				continue
			}
			if end, more := sentences(line); more {
				t.Errorf("%s:%d: one sentence per line: break it before %q", filepath.Base(page), i+1, strings.TrimSpace(line[end:]))
			}
		}
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"One. Two.": "Two.", "One `a.b C. D` more.": "", "1. One.": "", "**Label.** One.": "", "- **Label.** One. Two.": "Two.", "As (one. Two) says.": "",
		`It says "One. Two" there.`: "", "See [a](c. D) there.": "", "Up to 1.5 MB, e.g. Three.": "", "Really? Yes.": "Yes.", "It says `x`. `y` is next.": "`y` is next.", "": "",
	} {
		end, more := sentences(line)
		require.Equal(t, want != "", more, line)
		if more {
			require.Equal(t, want, strings.TrimSpace(line[end:]), line)
		}
	}
}
