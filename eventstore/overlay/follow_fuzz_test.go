package overlay_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// nothing is a reader of a store in which nothing was recorded.
type nothing struct{ eventstore.Reader }

func (nothing) Transcripts(context.Context, id.Thread, []id.Checkpoint) (*eventstore.Transcripts, error) {
	return eventstore.NewTranscripts(nil, nil, 0), nil
}

// FuzzFollow shows three values of a run, one after the other, whatever they are.
func FuzzFollow(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[]}`, `{"messages":[{"type":"human","content":"x","id":"1"}],"n":1}`, `{"n":1,"messages": [ {"type":"ai","content":"y","id":"2"} ] }`,
		`{"messages":[{"type":"human","content":"s","id":"s","additional_kwargs":{"lc_source":"summarization"}},{"type":"ai","content":"y","id":"2"}]}`,
		`{"messages":[{"type":"human","content":"x","id":null},null,7]}`, `{"messages":null}`, `[`,
	} {
		for _, other := range []string{`{"messages":[]}`, seed, `{"messages":[{"type":"human","content":"x","id":"1"},{"type":"ai","content":"y","id":"2"}]}`} {
			f.Add([]byte(other), []byte(seed), []byte(other))
		}
	}
	o := overlay.New(nothing{}, overlay.Config{Settings: overlay.Defaults()})
	look := o.Look(context.Background(), "", overlay.Stream)
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		follow, err := o.Follow(t.Context(), "t", look, "", &overlay.Ahead{Grown: true})
		require.NoError(t, err)
		for _, values := range [][]byte{a, b, c} {
			if follow.Passes(values) || !jsonscan.Valid(values) {
				continue
			}
			shown, err := follow.Values(values)
			require.NoError(t, err)
			require.True(t, json.Valid(shown), "%s", values)
		}
	})
}
