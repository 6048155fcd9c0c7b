package gateway

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/account"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/thread"
)

// A run that is not in the thread of the path is unknown to who does not own its thread; a database that is away is no 404.
func TestRunsOfOtherThreads(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.Unavailable, "the database is away")
	who := &caller{User: &account.User{ID: "ann"}, id: "ann"}
	view := func(owner string) *thread.View {
		v := &thread.View{}
		v.Metadata = json.RawMessage(`{"` + deerflow.OwnerKey + `":"` + owner + `"}`)
		return v
	}
	x := &run.Run{ID: id.Run("r"), Thread: id.Thread("b")}
	for name, c := range map[string]struct {
		threads *fakeThreads
		want    error
	}{
		"own thread":      {&fakeThreads{found: view("ann")}, fault.New(fault.NotFound, "Run r not found in thread a")},
		"of another user": {&fakeThreads{found: view("bob")}, deerflow.NoRun("r")},
		"deleted":         {&fakeThreads{}, deerflow.NoRun("r")},
		"away":            {&fakeThreads{err: away}, away},
	} {
		s := &ownership{Threads: c.threads}
		require.Equal(t, c.want, s.elsewhere(anyRequest(t), who, x, "a"), name)
		if err := s.checkRun(anyRequest(t), who, x); name == "own thread" {
			require.NoError(t, err)
		} else {
			require.Equal(t, c.want, err, name)
		}
	}
}
