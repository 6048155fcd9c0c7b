package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistoryJSONL(t *testing.T) {
	t.Parallel()
	load := func(history string) (string, string, error) {
		src := setup(t, `{"graphs": {"a": "./agent.py:graph"}, "history": `+history+`}`, nil)
		c, warnings, err := Load(src)
		require.Empty(t, warnings)
		if err != nil {
			return "", "", err
		}
		return c.History.JSONL, filepath.Dir(src.File), nil
	}
	got, dir, err := load(`{"jsonl": "./events"}`)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "events"), got)
	got, _, err = load(`{"jsonl": "/var/events/", "markers": "off"}`)
	require.NoError(t, err)
	require.Equal(t, "/var/events", got)
	for _, none := range []string{`{}`, `{"jsonl": null}`} {
		got, _, err = load(none)
		require.NoError(t, err)
		require.Empty(t, got)
	}
	_, _, err = load(`{"jsonl": true}`)
	require.ErrorContains(t, err, "history.jsonl: is true or false; name a folder")
	_, _, err = load(`{"jsonl": ""}`)
	require.ErrorContains(t, err, "history.jsonl: is empty; name a folder")
}

func TestSearchIsOnUnlessItIsTurnedOff(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{`{}`: true, `{"search": true}`: true, `{"search": false, "markers": "off"}`: false} {
		c, warnings, err := Load(setup(t, `{"graphs": {"a": "./agent.py:graph"}, "history": `+text+`}`, nil))
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.Equal(t, want, c.History.Search, text)
	}
}
