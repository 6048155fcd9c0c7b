package changes

import (
	"fmt"
	"strings"
)

const (
	around   = 3           // lines that are shown around a difference
	maxEdits = 1000        // lines that may differ before a text counts as rewritten
	maxWork  = 100_000_000 // about how many lines are compared with each other for all files of a comparison
)

// edit is a line of a difference: ' ' is in both texts, '-' in the first, '+' in the second.
type edit struct {
	kind byte
	line string
}

// unified returns the difference of two texts in the unified format, and how many lines were added and deleted; "" for equal lines.
// It takes what it costs from work; without any left, all lines count as rewritten.
func unified(from, to, before, after string, work *int) (text string, added, deleted int) {
	edits := compare(lines(before), lines(after), work)
	var b strings.Builder
	a, z := 1, 1 // numbers of the next lines
	for i := 0; i < len(edits); {
		start, end := hunk(edits, i)
		if start == len(edits) {
			break
		}
		for ; i < start; i++ {
			a, z = a+1, z+1
		}
		if b.Len() == 0 {
			b.WriteString("--- " + from + "\n+++ " + to)
		}
		olds, news := 0, 0
		var body strings.Builder
		for ; i < end; i++ {
			switch edits[i].kind {
			case '-':
				olds, deleted = olds+1, deleted+1
			case '+':
				news, added = news+1, added+1
			default:
				olds, news = olds+1, news+1
			}
			body.WriteString("\n" + string(edits[i].kind) + edits[i].line)
		}
		fmt.Fprintf(&b, "\n@@ -%s +%s @@%s", span(a, olds), span(z, news), body.String())
		a, z = a+olds, z+news
	}
	return b.String(), added, deleted
}

// lines splits a text as Python's splitlines does for the usual ends of lines.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// hunk returns the first edits from i on that are shown together, with the lines around them; both are len(edits) when none differs.
func hunk(edits []edit, i int) (start, end int) {
	first := i
	for first < len(edits) && edits[first].kind == ' ' {
		first++
	}
	if first == len(edits) {
		return len(edits), len(edits)
	}
	end = first
	for equal := 0; end < len(edits) && equal <= 2*around; end++ {
		if equal++; edits[end].kind != ' ' {
			equal = 0
		}
	}
	last := end - 1
	for edits[last].kind == ' ' {
		last--
	}
	return max(i, first-around), min(len(edits), last+1+around)
}

// span is a range of lines in the unified format.
func span(first, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", first-1)
	case 1:
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d,%d", first, n)
}

// compare returns a shortest sequence of edits (Myers), or for texts that differ in more than maxEdits lines one that replaces all between their
// common beginning and end. Time is bounded by work, memory by maxEdits squared.
func compare(a, b []string, work *int) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	out := make([]edit, 0, max(len(a), len(b)))
	for _, line := range a[:head] {
		out = append(out, edit{' ', line})
	}
	out = append(out, middle(a[head:len(a)-tail], b[head:len(b)-tail], work)...)
	for _, line := range a[len(a)-tail:] {
		out = append(out, edit{' ', line})
	}
	return out
}

// middle compares texts whose first and last lines differ.
func middle(a, b []string, work *int) []edit {
	var trace [][]int // for each number of edits, how far the diagonals -d to d reach in a
	for d := 0; d <= min(len(a)+len(b), maxEdits) && *work > 0; d++ {
		*work -= d
		reach := make([]int, 2*d+1)
		for k := -d; k <= d; k += 2 {
			x := 0
			if d > 0 {
				x, _ = step(trace[d-1], d, k)
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x, *work = x+1, *work-1
			}
			reach[k+d] = x
			if x >= len(a) && x-k >= len(b) {
				return back(a, b, append(trace, reach))
			}
		}
		trace = append(trace, reach)
	}
	out := make([]edit, 0, len(a)+len(b))
	for _, line := range a {
		out = append(out, edit{'-', line})
	}
	for _, line := range b {
		out = append(out, edit{'+', line})
	}
	return out
}

// step returns where the d-th edit ends on diagonal k, and the diagonal that it comes from. before are the reaches of d-1 edits.
func step(before []int, d, k int) (x, from int) {
	at := func(k int) int { return before[k+d-1] }
	if k == -d || k != d && at(k-1) < at(k+1) {
		return at(k + 1), k + 1
	}
	return at(k-1) + 1, k - 1
}

// back follows the reaches from the end to the beginning.
func back(a, b []string, trace [][]int) []edit {
	var out []edit
	x, y := len(a), len(b)
	for d := len(trace) - 1; d >= 0; d-- {
		k, start, from := x-y, 0, 0
		if d > 0 {
			start, from = step(trace[d-1], d, k)
		}
		for x > start {
			x, y = x-1, y-1
			out = append(out, edit{' ', a[x]})
		}
		if d == 0 {
			break
		}
		if from == k+1 {
			y--
			out = append(out, edit{'+', b[y]})
		} else {
			x--
			out = append(out, edit{'-', a[x]})
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
