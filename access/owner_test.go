package access

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/contain"
)

// Select says without a question what Decide says to one, for each actor, key, resource and action.
func TestOwnerSelects(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"owner", "user \"x\""} {
		for _, identity := range []string{"ada", "ben", `"`, "é\n", "", "$or"} {
			for _, resource := range []string{Threads, Assistants, Crons, Store} {
				for _, action := range []string{"read", "search", "create", "update", "delete", "create_run"} {
					o, actor := Owner{Key: key}, &Actor{Identity: identity}
					for range 2 { // made, and found again
						got, ok := o.Select(actor, resource, action)
						require.Equal(t, resource != Store, ok)
						if !ok {
							continue
						}
						decided, err := o.Decide(t.Context(), actor, Question{Resource: resource, Action: action, Value: json.RawMessage(`{"metadata":{"owner":"x"}}`)})
						require.NoError(t, err)
						want, err := ParseFilter(decided[0].Filter)
						require.NoError(t, err)
						terms, exact := want.Terms()
						gotTerms, gotExact := got.Terms()
						require.Equal(t, terms, gotTerms)
						require.Equal(t, exact, gotExact)
						require.Contains(t, gotTerms, []contain.Term{{Key: key, Value: `"` + identity}})
					}
				}
			}
		}
	}
}
