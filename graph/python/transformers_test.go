package python_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/python"
)

// TestEventsOfModelsBecomeChunks makes chunks of the events that LangChain makes of random messages, and compares the events that it makes of those.
func TestEventsOfModelsBecomeChunks(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Graphs = map[string]python.Spec{"spoken": {Path: "./spoken.py:graph"}}
	p := start(t, o)
	seed := rand.IntN(1 << 30)
	events := must(t, p, "spoken", invocation(newMemory(), fmt.Sprintf(`{"seed":%d,"count":2000}`, seed), "updates"))
	var got struct{ Check struct{ Checked int } }
	require.NoError(t, json.Unmarshal([]byte(events[len(events)-1].data), &got))
	require.Equal(t, 2000, got.Check.Checked)
}

// A transformer that fails ends the run and its nodes, which otherwise worked on unheard.
func TestTransformerThatFails(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Graphs = map[string]python.Spec{"transformed": {Path: "./transformed.py:graph"}}
	p := start(t, o)
	out := filepath.Join(t.TempDir(), "out")
	_, err := collect(t, p.Graph("transformed"), invocation(newMemory(), fmt.Sprintf(`{"out":%q}`, out), "custom", "values", graph.ModeChannels))
	require.ErrorContains(t, err, "the transformer failed")
	require.Eventually(t, func() bool {
		said, err := os.ReadFile(out)
		return err == nil && string(said) == "cancelled"
	}, 20*time.Second, 10*time.Millisecond)
}
