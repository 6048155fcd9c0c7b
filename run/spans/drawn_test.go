package spans

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrawn(t *testing.T) {
	for ns, want := range map[string]string{
		"":                          "model",
		"model:1f0":                 "model",
		"outer:1f0|inner:2a":        "outer:inner",
		"outer:1f0|1|inner:2a":      "outer:inner", // the second call of a subgraph in one node
		"a:1|b:2|3|c:4":             "a:b:c",
		"outer:1f0|outer:2|outer:3": "outer:outer:outer",
	} {
		require.Equal(t, want, Span{Name: "model", NS: ns}.Drawn(), ns)
	}
}
