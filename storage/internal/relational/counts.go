package relational

import (
	"slices"
	"time"

	"understudy/internal/cache"
	"understudy/internal/contain"
)

// How many threads have a term decides how a search reads the index. The counts of the last seconds are kept: those that a search chooses by may be old, and it finds
// the same in any case. Those that it relies on it reads itself, where each question is a round trip together with its rows.

const (
	// countsFor is how long a count is kept, and maxCounts how many are.
	countsFor = 10 * time.Second
	maxCounts = 4096
)

// notListedYet stands for the threads that are not listed (see lists.go) where terms are counted. Values of terms are never empty.
var notListedYet contain.Term

// keptCounts are the counts of the last seconds.
type keptCounts struct {
	now func() time.Time
	of  *cache.Cache[contain.Term, keptCount]
}

// keptCount is how many threads have a term, exactly if there are fewer than the bound up to which they were counted.
type keptCount struct {
	n, bound int
	until    time.Time
}

// get returns the count of a term up to a bound.
func (k *keptCounts) get(term contain.Term, bound int) (n int, found bool) {
	c, found := k.of.Get(term)
	if !found || c.n == c.bound && c.bound < bound || !k.now().Before(c.until) {
		return 0, false
	}
	return min(c.n, bound), true
}

func (k *keptCounts) put(term contain.Term, n, bound int) {
	k.of.Put(term, keptCount{n, bound, k.now().Add(countsFor)}, 1)
}

// counter counts threads by their terms for one search.
type counter struct {
	q    Querier
	kept *keptCounts // nil: none are kept
	// presumes has exist presume that there is what mostly is, and check it together with the rows of the search: if wrong is set then, they are not those of the search.
	presumes, wrong bool
}

// count counts the threads with each term, up to a bound.
func (c *counter) count(terms []contain.Term, bound int) ([]int, error) {
	counts, asked := make([]int, len(terms)), false
	for i, term := range terms {
		if c.kept != nil {
			if n, found := c.kept.get(term, bound); found {
				counts[i] = n
				continue
			}
		}
		asked = true
		if err := c.ask(term, bound, func(n int) { counts[i] = n }); err != nil {
			return nil, err
		}
	}
	if !asked {
		return counts, nil
	}
	return counts, c.q.Send()
}

// ask counts the threads with a term, up to a bound, together with what is asked next.
func (c *counter) ask(term contain.Term, bound int, fn func(n int)) error {
	counted := func(r Row) error {
		n := number[int](r)
		if c.kept != nil {
			c.kept.put(term, n, bound)
		}
		fn(n)
		return nil
	}
	if term == notListedYet {
		return c.q.Ask(CountUnlisted, counted, bound)
	}
	return c.q.Ask(CountTerm, counted, term.Key, term.Value, bound)
}

// exist returns those of some terms that a search has to read, because a thread may have them.
func (c *counter) exist(terms []contain.Term) (out []contain.Term, err error) {
	if !c.presumes {
		for _, term := range terms {
			if err := c.ask(term, 1, func(n int) {
				if n > 0 {
					out = append(out, term)
				}
			}); err != nil {
				return nil, err
			}
		}
		return out, c.q.Send()
	}
	for _, term := range terms {
		if n, found := c.kept.get(term, 1); found && n > 0 { // if there is none any more, the search reads nothing there
			out = append(out, term)
		} else if err := c.ask(term, 1, func(n int) { c.wrong = c.wrong || n > 0 }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// rarest returns the term that the fewest threads have, and how many have it. It does not count far beyond fewThreads.
func (c *counter) rarest(terms []contain.Term) (best, n int, err error) {
	bound, step := 100, fewThreads/100+1
	if _, nests := c.q.(Nesting); nests { // a question costs little: first those that take no time
		bound, step = 32, 8
	}
	for ; ; bound *= step {
		counts, err := c.count(terms, bound)
		if err != nil {
			return 0, 0, err
		}
		n = slices.Min(counts)
		if n < bound || bound > fewThreads {
			return slices.Index(counts, n), n, nil
		}
	}
}
