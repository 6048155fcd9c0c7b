package search_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"understudy/internal/seedtest"
	"understudy/thread/search"
)

// marked returns the text of a snippet with its matches in brackets.
func marked(parts []search.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Match {
			b.WriteString("[" + p.Text + "]")
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func TestSnippet(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("lorem ipsum ", 40)
	for _, c := range []struct{ text, query, want string }{
		{"The Cat sat", "cat", "The [Cat] sat"},
		{"The catalog", "cat", "The [catalog]"},
		{"The catalog", "cat ", ""},
		{"The catalog and the cat", "cat the", "[The] catalog and [the] [cat]"},
		{"Zürich, ÉTÉ", "zurich ete", "[Zürich], [ÉTÉ]"},
		{"Zu\u0308rich", "zürich", "[Zu\u0308rich]"},
		{"ﬁne", "fine", "[ﬁne]"},
		{"一昨日東京へ行った", "東京", "一昨日[東京]へ行った"},
		{"東の京", "東京", ""},
		{"foo-bar", "foo-bar", "[foo]-[bar]"},
		{"<b>x</b>", "x", "<b>[x]</b>"},
		{"nothing", "cat", ""},
		{"🎉 party", "party", "🎉 [party]"},
		{long + "needle " + long, "needle", "…ipsum lorem ipsum lorem ipsum lorem ipsum lorem ipsum [needle] " + strings.Repeat("lorem ipsum ", 14) + "lorem…"},
	} {
		terms, err := search.Parse(c.query)
		require.NoError(t, err, c.query)
		got := marked(terms.Snippet(c.text))
		require.Equal(t, c.want, got, "%q in %q", c.query, c.text)
	}
	for _, bad := range []string{"", " ", "!?", "🎉", "\xff", strings.Repeat("word ", 17)} {
		_, err := search.Parse(bad)
		require.Error(t, err, "%q", bad)
	}
}

// Whatever a text is: each of its own words finds it, the index has that word, and the parts of the snippet are pieces of it.
func TestWordsFindTheirText(t *testing.T) {
	t.Parallel()
	alphabet := []rune("abcXYZ09 ,.-\nüßÉ\u0308東京へไทยकि한글🎉\u200fשלום")
	for seed := range seedtest.Seeds(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		var b strings.Builder
		for range r.IntN(400) {
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		}
		if r.IntN(4) == 0 {
			b.WriteString("\xff\xc0broken")
		}
		text := b.String()
		words := search.Words(text)
		for _, w := range words {
			require.True(t, utf8.ValidString(w))
			terms, err := search.Parse(w)
			require.NoError(t, err)
			require.NotNil(t, terms.Snippet(text), "%q in %q", w, text)
			for _, part := range terms.Words() {
				require.True(t, slices.ContainsFunc(words, func(have string) bool { return strings.HasPrefix(have, part) }), "%q of %q", part, text)
			}
			prefix := string([]rune(w)[:1])
			terms, err = search.Parse(prefix)
			require.NoError(t, err)
			require.NotNil(t, terms.Snippet(text), "%q in %q", prefix, text)
		}
	}
}

func FuzzSnippet(f *testing.F) {
	f.Add("The cat sat", "cat")
	f.Add("東京\xff", "京")
	f.Fuzz(func(t *testing.T, text, query string) {
		terms, err := search.Parse(query)
		if err != nil {
			return
		}
		for _, p := range terms.Snippet(text) {
			require.True(t, utf8.ValidString(p.Text))
			require.NotEmpty(t, p.Text)
		}
	})
}
