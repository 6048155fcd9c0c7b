package crash

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/run"
)

// What the death of a server counts for the runs that it left, by what it executed besides.
func TestDeaths(t *testing.T) {
	t.Parallel()
	alone := &run.Run{Owner: "a", Crashes: 2, Turn: run.Alone}
	other := &run.Run{Owner: "a"}
	for _, tt := range []struct {
		name    string
		crashes int
		turn    run.Turn
		beside  *run.Run // left by the same server; nil: none
		want    int
	}{
		{"the only run is a suspect at once", 0, run.NoTurn, nil, 2},
		{"the only run, again", 1, run.NoTurn, nil, 2},
		{"one among others", 0, run.NoTurn, other, 1},
		{"one among others, again", 1, run.NoTurn, other, 2},
		{"the only suspect", 2, run.Alone, other, 3},
		{"the only suspect, again", 3, run.Alone, other, 4},
		{"a suspect that waited is none: the cause is another", 2, run.NoTurn, other, 1},
		{"a suspect that waited while another was tried", 3, run.NoTurn, alone, 3},
		{"a suspect that had passed while another was tried", 2, run.Company, alone, 1},
		{"a suspect that had passed, with nobody to blame", 2, run.Company, other, 2},
		{"a run beside a suspect", 0, run.NoTurn, alone, 1},
		{"one that is not started again", 4, run.Alone, nil, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &run.Run{Owner: "a", Crashes: tt.crashes, Turn: tt.turn}
			left := []*run.Run{r, {Owner: "b", Turn: run.Alone}} // of another server, which says nothing of this one
			if tt.beside != nil {
				left = append(left, tt.beside)
			}
			deaths := DeathsOf(left)
			deaths.Count(r)
			require.Equal(t, tt.want, r.Crashes)
			plan := map[int]string{1: "resumes together", 2: "tried alone next", 3: "waits", 4: "ServerDied"}
			require.Contains(t, deaths.Plan(r), plan[tt.want])
			require.Equal(t, tt.want == 2 && tt.beside == nil, strings.Contains(deaths.Plan(r), "executed no other run"), "why it counts twice")
			require.Equal(t, run.NoTurn, r.Turn)
		})
	}
}
