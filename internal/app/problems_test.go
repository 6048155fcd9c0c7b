package app

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/config"
	"understudy/internal/fleet"
)

// A server reports why its last reload changed nothing, with the place in the user's files, until one does.
func TestReloadsThatChangeNothing(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: &config.Config{Dir: "/app"}}
	missing := &graph.Failure{Type: "ModuleNotFoundError", Message: "No module named 'x'", Detail: "  File \"/app/a.py\", line 6, in <module>\n"}
	s.NoteReload(&python.ReloadError{Problems: map[string]error{"g": missing}})
	require.Equal(t, []fleet.Problem{{Graph: "g", At: "a.py:6", Error: "ModuleNotFoundError: No module named 'x'", Reload: true}}, s.problems())
	s.NoteReload(config.Mistakes{{Text: "graphs: not an object"}})
	require.Equal(t, []fleet.Problem{{Error: "graphs: not an object", Reload: true}}, s.problems())
	s.NoteReload(errors.New("this needs a restart"))
	require.Equal(t, []fleet.Problem{{Error: "this needs a restart", Reload: true}}, s.problems())
	s.NoteReload(nil)
	require.Empty(t, s.problems())

	long := fleet.Bounded(make([]fleet.Problem, 100))
	require.Len(t, long, 20)
	require.Len(t, fleet.Bounded([]fleet.Problem{{Error: strings.Repeat("é", 10_000)}})[0].Error, 1000+len("…"))
}
