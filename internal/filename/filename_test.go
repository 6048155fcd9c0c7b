package filename

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a.txt", "تقرير.pdf", "דוח.docx", "レポート.xlsx", "e\u0301.txt", "👩\u200d💻.md", "a\u200eb", "a\u202fb", "con", "a b"} {
		require.True(t, Plain(name), "%q", name)
	}
	for _, name := range []string{"a\x00", "a\nb", "\x1b[31m", "a\x7f", "a\u0085b", "a\u009bb", "a\u2028b", "a\u2029", "\u202egpj.exe", "\u2067x\u2069", "a\xff"} {
		require.False(t, Plain(name), "%q", name)
	}
}

// Names that differ in case or composition only are one; others are not.
func TestFolded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"é.TXT", "Ångström", "한국어.md", "ﬁ", "Ǆ", "ǰ", "ΐ", "İ", "plain"} {
		for _, form := range []norm.Form{norm.NFC, norm.NFD} {
			require.Equal(t, Folded(name), Folded(form.String(name)), "%q", name)
			require.Equal(t, Folded(name), Folded(form.String(strings.ToLower(name))), "%q", name)
			require.Equal(t, Folded(name), Folded(Folded(name)), "%q", name)
		}
	}
	require.NotEqual(t, Folded("a"), Folded("ä"))
	require.NotEqual(t, Folded("a/b"), Folded("a b"))
}
