package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/config"
)

func TestMirrorNeedsADataFolder(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), &config.Config{DatabaseURL: "postgres://h/d"}, Options{Changed: func([]id.Thread) {}})
	require.ErrorContains(t, err, "history.jsonl")
}
