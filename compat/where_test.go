package compat

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/thread"
)

// A condition that the server does not know is refused: without it more threads would be changed than were asked for.
func TestConditionsOfChanges(t *testing.T) {
	t.Parallel()
	prune := func(where string) (*thread.Condition, error) {
		_, _, c, err := PruneThreads([]byte(`{"thread_ids":[]` + where + `}`))
		return c, err
	}
	for where, want := range map[string]*thread.Condition{
		``:                              nil,
		`,"where":{}`:                   {},
		`,"where":{"status":"error"}`:   {Status: thread.Errored},
		`,"where":{"metadata":{"a":1}}`: {Metadata: []byte(`{"a":1}`)},
	} {
		got, err := prune(where)
		require.NoError(t, err, where)
		require.Equal(t, want, got, where)
	}
	for _, where := range []string{`{"values":{"a":1}}`, `{"Status":"error"}`, `{"status":"done"}`, `{"metadata":[]}`, `"error"`, `[]`} {
		_, err := prune(`,"where":` + where)
		require.True(t, fault.Is(err, fault.Unprocessable), "%s: %v", where, err)
		_, err = PatchThread([]byte(`{"where":` + where + `}`))
		require.True(t, fault.Is(err, fault.Unprocessable), "%s: %v", where, err)
	}
}
