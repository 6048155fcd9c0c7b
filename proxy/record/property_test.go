package record_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/internal/seedtest"
)

// converse makes a random conversation: runs, summaries by name and by shape, removals, edits, forks, messages without ids.
func converse(u *upstream, x *talk, rnd *rand.Rand, steps int, each func(*checkpoint)) {
	for n := range steps {
		at, head := len(x.checkpoints), x.head()
		from := head
		if head != nil && rnd.IntN(8) == 0 {
			from = x.checkpoints[rnd.IntN(len(x.checkpoints))]
		}
		list := slices.Clone(x.messages(from))
		run := fmt.Sprintf("run-%d", n)
		switch op := rnd.IntN(10); {
		case op < 4:
			u.run(x, from, n, rnd.IntN(5))
		case op == 4: // a window, without words
			keep := min(len(list), 1+rnd.IntN(3))
			c := u.save(x, from, "loop", run, append(list, ai(fmt.Sprintf("w%d", n))))
			u.save(x, c, "loop", run, append(list[len(list)-keep:], ai(fmt.Sprintf("w%d", n))))
			x.runs[run] = `{"input":null,"command":null}`
		case op == 5: // by the input of a run
			if len(list) == 0 {
				continue
			}
			i := rnd.IntN(len(list))
			gone := fmt.Sprintf(`[{"type":"remove","id":%q}]`, gjson.Get(list[i], "id").String())
			x.runs[run] = `{"input":{"messages":` + gone + `},"command":null}`
			c := u.save(x, from, "input", run, list)
			c.Next, c.Results = []string{"__start__"}, `[{"id":"t","name":"__start__","interrupts":[],"result":{"messages":`+gone+`}}]`
			u.save(x, c, "loop", run, slices.Delete(slices.Clone(list), i, i+1))
		case op == 6 && len(list) > 0: // by an update, or all of it
			i := rnd.IntN(len(list))
			if rnd.IntN(4) == 0 {
				list = nil
			} else {
				list = slices.Delete(list, i, i+1)
			}
			u.save(x, from, "update", "", list)
		case op == 7 && len(list) > 0:
			i := rnd.IntN(len(list))
			list[i] = strings.Replace(list[i], `"content":"`, `"content":"edited `, 1)
			u.save(x, from, "update", "", list)
		case op == 8 && from != nil: // a sibling copy of a checkpoint
			c := u.save(x, x.at(from.Parent), "fork", "", list)
			c.Parent = from.Parent
		default:
			x.runs[run] = `{"input":null,"command":null}`
			u.save(x, from, "loop", run, append(list, fmt.Sprintf(`{"content":"hi %d","type":"human","id":null}`, rnd.IntN(2))))
		}
		for _, c := range x.checkpoints[at:] {
			each(c)
		}
	}
}

// What is caught up with in pieces, in any order, with failures in between, is what is recorded step by step.
func TestCatchingUpIsRecordingStepByStep(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 7))
			u := newUpstream()
			steps, late := setupOn(t, u), setupOn(t, u)
			x := u.thread("t1")
			converse(u, x, rnd, 30, func(c *checkpoint) {
				steps.State(t.Context(), steps.call, x.id, false, []byte(x.state(c, false)))
				if rnd.IntN(12) == 0 {
					late.state(t, x)
				}
			})
			late.breaks = func() bool { return rnd.IntN(4) == 0 }
			late.restart(t)
			broken := 0
			u.fails = func(_, _ string) (int, error) {
				if broken++; broken < 60 && rnd.IntN(3) == 0 {
					return []int{http.StatusInternalServerError, 0}[rnd.IntN(2)], errDown
				}
				return 0, nil
			}
			for range 6 {
				c := x.checkpoints[rnd.IntN(len(x.checkpoints))]
				switch rnd.IntN(3) {
				case 0:
					late.State(t.Context(), late.call, x.id, false, []byte(x.state(c, false)))
				case 1:
					late.History(t.Context(), late.call, x.id, []byte(x.history(c.ID, 1+rnd.IntN(20))))
				default:
					late.restart(t)
				}
			}
			u.fails = nil
			late.breaks = nil
			late.restart(t)
			whole := []byte(x.history("", 1000))
			want := steps.History(t.Context(), steps.call, x.id, whole)
			got := late.History(t.Context(), late.call, x.id, whole)
			for i, row := range gjson.ParseBytes(want).Array() {
				require.Equal(t, row.Get("values").Raw, gjson.GetBytes(got, fmt.Sprint(i, ".values")).Raw, "%s", row.Get("checkpoint.checkpoint_id"))
			}
			require.Equal(t, string(want), string(got))
			require.NotContains(t, string(got), `"incomplete"`)
			require.Equal(t, steps.page(t, x) != "", late.page(t, x) != "")
		})
	}
}
