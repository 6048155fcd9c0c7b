package stream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
)

func TestModesSelectEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		event string
		modes []string
		want  bool
	}{
		{"values", nil, true},
		{"values", []string{"values"}, true},
		{"values|child:1", []string{"values"}, true},
		{"values", []string{"values|child:1"}, false},
		{"updates", []string{"values", "messages"}, false},
		{"messages", []string{"messages"}, true},
		{"messages", []string{"messages-tuple"}, true},
		{"messages|child:1", []string{"messages-tuple"}, true},
		{"messages/partial", []string{"messages"}, true},
		{"messages/partial", []string{"messages-tuple"}, true},
		{"messages/metadata", []string{"messages/metadata"}, true},
		{"messages/partial", []string{"messages/metadata"}, false},
		{"messages", []string{"messages/partial"}, false},
		{"values", []string{"messages-tuple"}, false},
		{"error", []string{"values"}, false},
		{"tools", nil, false},
		{"tools|child:1", nil, false},
		{"tools", []string{"tools"}, true},
		{"toolsmith", nil, true},
		{graph.ModeIDs, nil, false},
		{graph.ModeIDs + "|child:1", nil, false},
		{"checkpoints", nil, true},
	} {
		require.Equal(t, c.want, matches(c.event, c.modes), "%s of %v", c.event, c.modes)
	}
}
