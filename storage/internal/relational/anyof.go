package relational

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"understudy/access"
	"understudy/internal/contain"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// A filter of access control may select threads by alternatives ($or), or by an item of a list ($contains). Then a search reads those that have one of some terms,
// and holds the filter against them. For items there are two more places to look: threads whose list is too long for the index (contain.Term.Long), and those that
// are not listed (see lists.go).

// searchTerms are the terms by which the index finds the threads of a search.
type searchTerms struct {
	all     []contain.Term   // that each has
	any     [][]contain.Term // alternatives of which each has one, in whole
	matched bool             // all says everything that the client asks
	reached bool             // all says everything that the reach of the client does
	finds   bool             // one term of each alternative says everything that the reach of the client does, but for long lists
}

// termsOf returns the terms of a search, except those with keys that are not in the index.
func termsOf(match *contain.Matcher, reach *access.Filter, hidden contain.Hidden) (out searchTerms) {
	match.Hide(hidden)
	out.all, out.matched = match.Terms()
	alternatives, exact := reach.Terms()
	if hidden != nil {
		alternatives, exact = indexedOf(alternatives, exact, hidden)
	}
	switch {
	case reach == nil:
		out.reached = true
	case len(alternatives) == 1:
		var items []contain.Term
		for _, term := range alternatives[0] {
			if term.OfList() {
				items = append(items, term)
			} else if !slices.Contains(out.all, term) {
				out.all = append(out.all, term)
			}
		}
		out.reached = exact && items == nil
		if items != nil {
			out.any = [][]contain.Term{items}
		}
	case len(alternatives) > 1 && len(alternatives) <= maxAny:
		out.any = alternatives
	}
	out.finds = exact && !slices.ContainsFunc(alternatives, func(a []contain.Term) bool { return len(a) > 1 })
	return out
}

// indexedOf removes terms that are not in the index. An alternative without other terms selects anything.
func indexedOf(alternatives [][]contain.Term, exact bool, hidden contain.Hidden) ([][]contain.Term, bool) {
	out := make([][]contain.Term, len(alternatives))
	for i, a := range alternatives {
		out[i] = contain.Except(a, hidden)
		exact = exact && len(out[i]) == len(a)
		if len(out[i]) == 0 && len(alternatives) > 1 {
			return nil, false
		}
	}
	return out, exact
}

// scans reports whether a search may read any number of threads to find a page.
func (t *searchTerms) scans(of thread.Query) bool {
	return rows.ScansThreads(of, max(len(t.all), min(len(t.any), 1)), t.matched && (t.reached || len(t.all) == 0 && len(t.any) > 0 && t.finds))
}

// anyOf are terms of which each thread that is looked for has one.
type anyOf struct {
	terms    []contain.Term
	unlisted bool // or is not listed
	exact    bool // nothing else has one of the terms
}

// anyOf chooses a term of each alternative: the one that the fewest threads have. It has no terms if there would be too many.
func (t *searchTerms) anyOf(c *counter) (out anyOf, err error) {
	add := func(term contain.Term) {
		if !slices.Contains(out.terms, term) {
			out.terms = append(out.terms, term)
		}
	}
	lists := false
	for _, a := range t.any {
		best := 0
		if len(a) > 1 {
			if best, _, err = c.rarest(a); err != nil {
				return out, err
			}
		}
		add(a[best])
		if a[best].OfList() {
			lists = true
			add(a[best].Long())
		}
	}
	if out.exact = !lists; lists {
		if err := out.lookBeyond(c); err != nil {
			return out, err
		}
	}
	if len(out.terms) > maxAny {
		return anyOf{}, nil
	}
	return out, nil
}

// lookBeyond decides whether threads with long lists, and those that are not listed, are read too: mostly there are none, and Postgres does not know it when it
// plans a search.
func (a *anyOf) lookBeyond(c *counter) error {
	look := []contain.Term{notListedYet}
	for _, term := range a.terms {
		if term == term.Long() {
			look = append(look, term)
		}
	}
	there, err := c.exist(look)
	if err != nil {
		return err
	}
	_, a.exact = c.q.(Nesting) // a server of before lists may leave rows of items behind, but there it cannot write meanwhile
	a.exact = a.exact && len(there) == 0
	a.unlisted = slices.Contains(there, notListedYet)
	a.terms = slices.DeleteFunc(a.terms, func(term contain.Term) bool { return slices.Contains(look, term) && !slices.Contains(there, term) })
	return nil
}

// isBetter reports whether few threads have one of the terms, and many have the others, all of which each has.
func (a *anyOf) isBetter(c *counter, others []contain.Term) (bool, error) {
	terms, sum := slices.Clip(a.terms), 0
	if a.unlisted {
		terms = append(terms, notListedYet)
	}
	for _, bound := range []int{100, fewThreads + 1} { // mostly they are so few that the others need not be counted
		counts, err := c.count(terms, bound)
		if err != nil {
			return false, err
		}
		sum = 0
		for _, n := range counts {
			sum += n
		}
		if sum < bound {
			break
		}
	}
	if sum < 100 || sum > fewThreads || len(others) == 0 {
		return sum <= fewThreads, nil
	}
	_, n, err := c.rarest(others)
	return n > fewThreads, err
}

// ofAny is a plan that reads the threads with one of some terms: in their order of updated_at, or all of them, sorted.
func (p ThreadSearch) ofAny(q Querier, by string, terms *searchTerms, any anyOf) ThreadSearch {
	if terms.matched && len(terms.all) == 0 {
		p.match = nil
	}
	if terms.finds && any.exact {
		p.reach = nil
	}
	direction, unlisted := 1, 0
	if p.ascending {
		direction = 0
	}
	if any.unlisted {
		unlisted = 1
	}
	n := len(any.terms)
	if n == 1 && any.exact {
		p.Text, p.args = threadsOfTerms[0][by][direction], termArgs(any.terms)
		return p
	}
	if by != "updated_at" {
		p.Text, p.args = sortedOfAny[unlisted][n][by][direction], termArgs(any.terms)
		return p
	}
	p.any = true
	if _, nests := q.(Nesting); nests {
		p.Terms, p.unlisted = any.terms, any.unlisted
		return p
	}
	p.Text, p.args = threadsOfAny[unlisted][1-direction][n], termArgs(any.terms)
	return p
}

func termArgs(terms []contain.Term) []any {
	args := make([]any, 0, 2*len(terms))
	for _, term := range terms {
		args = append(args, term.Key, term.Value)
	}
	return args
}

// maxAny bounds the alternatives that use the index.
const maxAny = 16

// threadsOfAny walks the threads that have one of some terms, in order of updated_at, the second with those that are not listed. A thread with several of them is
// returned as often, in a row. A server of before lists may leave rows of items behind, at a time when the thread was updated earlier.
var threadsOfAny = func() (list [2][2][maxAny + 1]Statement) {
	for i, direction := range []string{" DESC", ""} {
		order := " ORDER BY updated_at" + direction + ", thread_id" + direction
		for n := 1; n <= maxAny; n++ {
			parts := make([]string, n, n+1)
			for j := range parts {
				parts[j] = fmt.Sprintf("(SELECT updated_at, thread_id FROM thread_metadata WHERE key = $%d AND value = $%d%s)", 2*j+1, 2*j+2, order)
			}
			for unlisted := range 2 {
				if unlisted == 1 {
					parts = append(parts, "(SELECT updated_at, thread_id FROM threads WHERE "+notListed.Postgres+order+")")
				}
				list[unlisted][i][n] = Statement{Postgres: "SELECT t." + strings.ReplaceAll(ThreadColumns, ", ", ", t.") + " FROM (" + strings.Join(parts, " UNION ALL ") +
					") m JOIN threads t ON t.thread_id = m.thread_id AND t.updated_at = m.updated_at ORDER BY m.updated_at" + direction + ", m.thread_id" + direction}
			}
		}
	}
	return list
}()

// sortedOfAny reads the threads that have one of some terms, each once, and sorts them, the second with those that are not listed.
var sortedOfAny = func() (list [2][maxAny + 1]orders) {
	for n := 1; n <= maxAny; n++ {
		parts := make([]string, n)
		for j := range parts {
			parts[j] = fmt.Sprintf("SELECT thread_id FROM thread_metadata WHERE key = $%d AND value = $%d", 2*j+1, 2*j+2)
		}
		for unlisted := range 2 {
			selection := same("SELECT t." + strings.ReplaceAll(ThreadColumns, ", ", ", t.") + " FROM (" + strings.Join(parts, " UNION "))
			if unlisted == 1 {
				selection = selection.Then(same(" UNION SELECT thread_id FROM threads WHERE ")).Then(notListed)
			}
			selection = selection.Then(differing(") m JOIN", ") m CROSS JOIN")).Then(same(" threads t ON t.thread_id = m.thread_id")) // SQLite keeps the order of the tables
			list[unlisted][n] = inOrder(selection, "t.thread_id", "t.thread_id", "t.status", "t.created_at", "t.state_updated_at")
		}
	}
	return list
}()

// eachWithAny calls visit for the threads that have one of some terms, or with unlisted are not listed, in order: of each the next place is known, and the first of
// them all is next. It makes one query after the other, so it is for databases without round trips.
func eachWithAny(q Querier, terms []contain.Term, unlisted, ascending bool, visit func(Row) error) error {
	start, way, before := place{math.MaxInt64, rows.LastText}, 0, func(a, b place) bool { return b.less(a) }
	if ascending {
		start, way, before = place{math.MinInt64, ""}, 1, func(a, b place) bool { return a.less(b) }
	}
	type cursor struct {
		seek func(from place, found func(Row) error) error
		at   place
		left bool
	}
	var cursors []cursor
	for _, term := range terms {
		cursors = append(cursors, cursor{seek: func(from place, found func(Row) error) error {
			return q.Query(Seeks[way][1], found, term.Key, term.Value, from.updated, from.thread)
		}})
	}
	if unlisted {
		cursors = append(cursors, cursor{seek: func(from place, found func(Row) error) error {
			return q.Query(SeekUnlisted[way], found, from.updated, from.thread, 1)
		}})
	}
	seek := func(c *cursor, from place) error {
		c.left = false
		return c.seek(from, func(r Row) error {
			c.at, c.left = place{r.Int(0), r.Text(1)}, true
			return ErrStop
		})
	}
	for i := range cursors {
		if err := seek(&cursors[i], start); err != nil {
			return err
		}
	}
	for stopped := false; !stopped; {
		next := -1
		for i, c := range cursors {
			if c.left && (next < 0 || before(c.at, cursors[next].at)) {
				next = i
			}
		}
		if next < 0 {
			return nil
		}
		at := cursors[next].at
		if err := q.Query(SelectThread, func(r Row) error {
			err := visit(r)
			stopped = errors.Is(err, ErrStop)
			return err
		}, at.thread); err != nil {
			return err
		}
		for i := range cursors {
			if c := &cursors[i]; c.left && c.at == at && !stopped {
				if err := seek(c, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p place) less(o place) bool {
	return p.updated < o.updated || p.updated == o.updated && p.thread < o.thread
}
