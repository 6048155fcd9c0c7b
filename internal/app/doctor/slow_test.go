package doctor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// No check is silent for longer than three seconds: what takes long says what it does, and then what is left of it.
func TestSlowChecksSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		last, silent := time.Now(), time.Duration(0)
		say := func(text string) {
			said = append(said, text)
			silent = max(silent, time.Since(last))
			last = time.Now()
		}
		d := &doctor{Examination: Examination{Doing: say, Still: say}}
		d.slow("asking", time.Minute)()
		require.Empty(t, said, "it was quick")
		graphs := &unfinished{names: []string{"a", "b", "c"}}
		done := d.slowly("importing the graphs, each", time.Minute, graphs.text)
		for _, name := range []string{"a", "b", "c"} {
			time.Sleep(4500 * time.Millisecond)
			graphs.remove(name)
		}
		time.Sleep(3 * time.Second)
		done()
		time.Sleep(time.Minute)
		require.Equal(t, []string{
			"importing the graphs, each, for at most 1m0s", "still importing the graphs: a, and 2 after it, for 4s", "still importing the graphs: b, and 1 after it, for 7s",
			"still importing the graphs: c, for 10s", "still importing the graphs: c, for 13s", "still importing the graphs, for 16s",
		}, said)
		require.LessOrEqual(t, silent, stillEvery)
	})
}
