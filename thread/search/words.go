package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"understudy/internal/fault"
)

const (
	maxText  = 256 << 10 // bytes of a message that are indexed
	maxWords = 5_000     // different words of a message that are indexed
	maxWord  = 60        // bytes of a word that count
	maxQuery = 16        // words of a query
)

// segment is a word of a text: its normal form, and where it stands.
type segment struct {
	word     string
	from, to int
}

// alone are scripts that write no spaces between words: each of their letters counts as a word.
var alone = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar}

func isWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// segments calls fn with the words of a text in order until it returns false.
func segments(text string, fn func(segment) bool) {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !isWord(r) {
			at += size
			continue
		}
		end := at + size
		if !unicode.In(r, alone...) {
			for end < len(text) {
				next, size := utf8.DecodeRuneInString(text[end:])
				if !isWord(next) || unicode.In(next, alone...) {
					break
				}
				end += size
			}
		} else {
			for end < len(text) { // marks of the letter
				next, size := utf8.DecodeRuneInString(text[end:])
				if !unicode.IsMark(next) {
					break
				}
				end += size
			}
		}
		if word := normal(text[at:end]); word != "" && !fn(segment{word, at, end}) {
			return
		}
		at = end
	}
}

// normal returns the form in which words are compared: lower case, without accents, cut to maxWord.
func normal(word string) string {
	ascii := true
	for i := range len(word) {
		ascii = ascii && word[i] < utf8.RuneSelf
	}
	if ascii {
		return cut(strings.ToLower(word))
	}
	var b strings.Builder
	for _, r := range norm.NFKD.String(word) {
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return cut(b.String())
}

// cut shortens a word. A long one is found by its beginning.
func cut(word string) string {
	if len(word) <= maxWord {
		return word
	}
	end := maxWord
	for !utf8.RuneStart(word[end]) {
		end--
	}
	return word[:end]
}

// Words returns the different words of a text in their normal form, which consists of letters and digits. Of a long text those at its beginning.
func Words(text string) []string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	known := make(map[string]struct{}, 64)
	var list []string
	segments(text, func(s segment) bool {
		if _, twice := known[s.word]; !twice {
			known[s.word] = struct{}{}
			list = append(list, s.word)
		}
		return len(list) < maxWords
	})
	return list
}

// Terms are what a text must have to be found: all groups. The words of a group follow each other without anything between them.
type Terms struct {
	groups [][]string
	// Prefix: the last word of the last group may be the beginning of a word, because it is still being typed.
	Prefix bool
}

// Parse reads a query. The last word also finds longer ones, unless something follows it.
func Parse(text string) (Terms, error) {
	var t Terms
	end, words := -1, 0
	segments(text, func(s segment) bool {
		if s.from == end {
			last := &t.groups[len(t.groups)-1]
			*last = append(*last, s.word)
		} else {
			t.groups = append(t.groups, []string{s.word})
		}
		end = s.to
		words++
		return words <= maxQuery
	})
	switch {
	case words == 0:
		return t, fault.New(fault.Unprocessable, "Invalid text: it needs a word to search for")
	case words > maxQuery:
		return t, fault.Newf(fault.Unprocessable, "Invalid text: search for at most %d words", maxQuery)
	}
	t.Prefix = end == len(text)
	return t, nil
}

// Words returns the words that a text must have, each once; the last one may be a beginning if Prefix.
func (t Terms) Words() (list []string) {
	last := len(t.groups) - 1
	seen := map[string]bool{}
	for i, g := range t.groups {
		for j, w := range g {
			if final := i == last && j == len(g)-1; final || !seen[w] {
				seen[w] = true
				list = append(list, w)
			}
		}
	}
	return list
}

// Part is a piece of a snippet.
type Part struct {
	Text  string
	Match bool
}

const before, after = 60, 180 // bytes of a snippet around its first match

// Snippet returns the place in a text where it has the terms, with its matches marked; nil if it does not have all of them.
func (t Terms) Snippet(text string) []Part {
	var all []segment
	limited := text
	if len(limited) > maxText {
		limited = limited[:maxText]
	}
	segments(limited, func(s segment) bool {
		all = append(all, s)
		return true
	})
	first := -1
	var matches [][2]int
	for g := range t.groups {
		found := false
		for at := range all {
			if to, ok := t.matches(g, all[at:]); ok {
				found = true
				matches = append(matches, [2]int{all[at].from, to})
			}
		}
		if !found {
			return nil
		}
	}
	for _, m := range matches {
		if first < 0 || m[0] < first {
			first = m[0]
		}
	}
	return parts(text, matches, boundary(text, first-before, true), boundary(text, first+after, false))
}

// matches reports whether segments begin with a group, and where it ends.
func (t Terms) matches(g int, list []segment) (to int, ok bool) {
	group := t.groups[g]
	if len(list) < len(group) {
		return 0, false
	}
	for i, word := range group {
		s := list[i]
		if i > 0 && s.from != list[i-1].to {
			return 0, false
		}
		final := t.Prefix && g == len(t.groups)-1 && i == len(group)-1
		if s.word != word && !(final && strings.HasPrefix(s.word, word)) {
			return 0, false
		}
	}
	return list[len(group)-1].to, true
}

// boundary returns a place near at that does not cut a word of less than twenty bytes, or a letter.
func boundary(text string, at int, forward bool) int {
	if at <= 0 {
		return 0
	}
	if at >= len(text) {
		return len(text)
	}
	step := -1
	if forward {
		step = 1
	}
	for i := range 20 {
		if p := at + i*step; p > 0 && p < len(text) && (text[p] == ' ' || text[p] == '\n') {
			if forward {
				p++
			}
			return p
		}
	}
	for !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// parts cuts the piece of a text at its matches.
func parts(text string, matches [][2]int, from, to int) (list []Part) {
	marked := make([]bool, to-from)
	for _, m := range matches {
		for i := max(m[0], from); i < min(m[1], to); i++ {
			marked[i-from] = true
		}
	}
	add := func(piece string, match bool) {
		if piece != "" {
			list = append(list, Part{strings.ToValidUTF8(piece, "\uFFFD"), match})
		}
	}
	if from > 0 {
		add("…", false)
	}
	for at := from; at < to; {
		end := at + 1
		for end < to && marked[end-from] == marked[at-from] {
			end++
		}
		add(text[at:end], marked[at-from])
		at = end
	}
	if to < len(text) {
		add("…", false)
	}
	return list
}
