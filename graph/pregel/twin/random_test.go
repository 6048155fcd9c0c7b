package twin

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/internal/seedtest"
)

func compare(t *testing.T, p *python, c testCase) {
	t.Helper()
	if diff := differ(t, p, c); len(diff) > 0 {
		t.Errorf("%s\n%s", raw(c), listed(diff))
	}
}

// differ runs a case in both, and returns where they differ.
func differ(t testing.TB, p *python, c testCase) []string {
	diff, _ := differWith(t, p, c)
	return diff
}

// agreeOnce reports whether one of so many more answers to a case is the same in both.
func agreeOnce(t testing.TB, p *python, c testCase, attempts int) bool {
	t.Helper()
	for range attempts {
		if len(differ(t, p, c)) == 0 {
			return true
		}
	}
	return false
}

// differWith is differ, and returns what LangGraph did too.
func differWith(t testing.TB, p *python, c testCase) ([]string, map[string]any) {
	t.Helper()
	inPython := p.answer(t, c)
	if i := failedUpdate(c, inPython); i >= 0 {
		// LangGraph may leave a part of such an update behind, and then continues from it.
		if diff := differences("", errorOf(inPython, i), errorOf(answerGo(t, c, race{}), i), nil); len(diff) > 0 {
			return diff, inPython
		}
		c.Steps = c.Steps[:i]
		inPython = p.answer(t, c)
	}
	diff := compareAnswers(c, inPython, answerGo(t, c, race{}))
	if len(diff) > 0 {
		// Which tasks of a step end before another fails, and which takes an answer that names none, is a race. In LangGraph tasks begin in
		// their order, and those end that have little to do.
		const pause = 30 * time.Millisecond
		for _, r := range []race{{failing: pause}, {branching: pause, failing: pause / 2}, {branching: pause, others: pause}, {start: pause / 2}} {
			if late := compareAnswers(c, inPython, answerGo(t, c, r)); len(late) == 0 {
				return nil, inPython
			}
		}
		if twoFail(inPython) { // which of the two errors ends the run, no order decides
			return nil, inPython
		}
	}
	return diff, inPython
}

func compareAnswers(c testCase, inPython, inGo map[string]any) []string {
	inPython = clone(inPython)
	diff := compared(c, clone(inPython), clone(inGo))
	if len(diff) > 0 && inPython["steps"] != nil && inGo["steps"] != nil {
		// A subgraph concurrent with another task: only events of one namespace have an order.
		diff = compared(c, byNamespace(inPython), byNamespace(inGo))
	}
	return diff
}

// clone is a document that can be changed.
func clone(doc map[string]any) (out map[string]any) {
	if err := json.Unmarshal(raw(doc), &out); err != nil {
		panic(err)
	}
	return out
}

func stepsOf(doc map[string]any) []map[string]any {
	list, _ := doc["steps"].([]any)
	out := make([]map[string]any, len(list))
	for i, s := range list {
		out[i] = s.(map[string]any)
	}
	return out
}

// failedUpdate is the first step whose updates of the state could not be applied, and of which LangGraph may leave a part: an update, or a
// run with durability exit. -1: there is none.
func failedUpdate(c testCase, doc map[string]any) int {
	for i, s := range stepsOf(doc) {
		failure, _ := s["error"].(map[string]any)
		switch {
		case failure == nil:
		case c.Steps[i].Op == "update", c.Steps[i].Durability == "exit" && (failure["error"] == "TypeError" || failure["error"] == "InvalidUpdateError"):
			return i
		}
	}
	return -1
}

func errorOf(doc map[string]any, i int) any {
	if steps := stepsOf(doc); i < len(steps) {
		return steps[i]["error"]
	}
	return nil
}

// twoFail reports whether two tasks of one step failed by themselves.
func twoFail(doc map[string]any) bool {
	all, _ := doc["checkpoints"].([]any)
	return slices.ContainsFunc(all, func(c any) bool {
		failed := 0
		for _, w := range c.(map[string]any)["writes"].([]any) {
			if x := w.(map[string]any); x["channel"] == "__error__" && x["value"] != "CancelledError()" {
				failed++
			}
		}
		return failed > 1
	})
}

// listed shows the first differences.
func listed(diff []string) string {
	const shown = 12
	more := ""
	if len(diff) > shown {
		diff, more = diff[:shown], fmt.Sprintf("\nand %d more", len(diff)-shown)
	}
	for i, d := range diff {
		diff[i] = d[:min(len(d), 1500)]
	}
	return strings.Join(diff, "\n") + more
}

// budget is how many random cases run, from which seed, and for how long at most: TWIN_RANDOM, TWIN_SEED and TWIN_TIME. By default a
// modest number, and no longer than a test of this package may take.
func budget(t *testing.T) (count int, first uint64, until time.Time) {
	t.Helper()
	limit := 15 * time.Second
	count, first = int(seedtest.Seeds(120)), 1 //nolint:gosec // small
	read := func(name string, set func(string) error) {
		if text := os.Getenv(name); text != "" {
			require.NoError(t, set(text), name)
		}
	}
	read("TWIN_RANDOM", func(s string) (err error) {
		limit = time.Hour
		count, err = strconv.Atoi(s)
		return err
	})
	read("TWIN_SEED", func(s string) (err error) { first, err = strconv.ParseUint(s, 10, 64); return err })
	read("TWIN_TIME", func(s string) (err error) { limit, err = time.ParseDuration(s); return err })
	return count, first, time.Now().Add(limit)
}

// Random graphs show the same in LangGraph and here. A failure prints its seed and the smallest case that still differs.
func TestRandom(t *testing.T) {
	p := twinOf(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	count, first, until := budget(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	seen := tally{}
	for seed := first; seed < first+uint64(count); seed++ {
		if time.Now().After(until) {
			break
		}
		c := newGenerator(seed).testCase(seed)
		c.Patience = 20
		diff := seen.differ(t, p, c)
		if len(diff) == 0 {
			continue
		}
		// Where tasks race, as at a recursion limit next to a subgraph, both sides vary. make fuzz-twin lists such seeds.
		if agreeOnce(t, p, c, 2) {
			t.Logf("seed %d differs sometimes: %s", seed, listed(diff))
			continue
		}
		small := shrink(c, func(smaller testCase) bool {
			smaller.Patience = 3
			return alike(differ(t, p, smaller), diff)
		})
		t.Errorf("seed %d differs (TWIN_RANDOM=1 TWIN_SEED=%d). The smallest case that does:\n\n%s\n%s\nas JSON for TWIN_CASE:\n%s",
			seed, seed, described(small), listed(differ(t, p, small)), raw(small))
	}
	t.Logf("%d graphs, %d runs and updates, %d events", seen.graphs, seen.steps, seen.events)
}

// tally counts what was compared.
type tally struct{ graphs, steps, events int }

func (y *tally) differ(t testing.TB, p *python, c testCase) []string {
	diff, doc := differWith(t, p, c)
	y.graphs++
	for _, s := range stepsOf(doc) {
		y.steps++
		y.events += len(s["events"].([]any))
	}
	return diff
}

// alike reports whether some of the differences are at the same place of the two documents, so that a smaller case does not show
// another difference, or just a node that waits for one that was removed.
func alike(a, b []string) bool {
	places := func(diff []string) (out []string) {
		for _, d := range diff {
			place, _, _ := strings.Cut(d, ":")
			if strings.HasPrefix(place, "/drawings") {
				continue // of nodes that nothing leads to any more
			}
			out = append(out, digits.ReplaceAllString(place, "#"))
		}
		return out
	}
	had := places(b)
	return !strings.Contains(strings.Join(a, ""), `"TimeoutError"`) &&
		slices.ContainsFunc(places(a), func(place string) bool { return slices.Contains(had, place) })
}

var digits = regexp.MustCompile(`[0-9]+`)

// A case from a file shows the same: TWIN_CASE is its path.
func TestCaseOfFile(t *testing.T) {
	path := os.Getenv("TWIN_CASE")
	if path == "" {
		t.Skip("TWIN_CASE names no file")
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var c testCase
	require.NoError(t, json.Unmarshal(text, &c))
	fmt.Println(described(c))
	compare(t, twinOf(t), c)
}
