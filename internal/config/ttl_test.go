package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	c, warnings, err := Load(setup(t, `{"graphs": {"a": "./agent.py:g"},
		"checkpointer": {"ttl": {"strategy": "keep_latest", "default_ttl": 43200, "sweep_interval_minutes": 0.5, "sweep_limit": 7}},
		"store": {"ttl": {"refresh_on_read": false, "default_ttl": 1.5, "sweep_interval_minutes": 120}}}`, nil))
	require.NoError(t, err)
	require.Empty(t, warnings)
	month := 30 * 24 * time.Hour
	require.Equal(t, ThreadTTL{Strategy: "keep_latest", Default: &month, Every: 30 * time.Second, Limit: 7}, c.ThreadTTL)
	require.Equal(t, ItemTTL{Default: 90 * time.Second, Unread: true, Every: 2 * time.Hour}, c.ItemTTL)

	c, _, err = Load(setup(t, `{"graphs": {"a": "./agent.py:g"}, "checkpointer": {"ttl": {"default_ttl": 1e300}}, "store": {"ttl": {"default_ttl": null}}}`, nil))
	require.NoError(t, err)
	require.Equal(t, ThreadTTL{Strategy: "delete", Default: ptr(longestTTL)}, c.ThreadTTL)
	require.Equal(t, ItemTTL{}, c.ItemTTL)

	for section, want := range map[string]string{
		`"checkpointer": {"ttl": {"strategy": "forget"}}`:            `checkpointer.ttl.strategy: "forget" is none of delete, keep_latest`,
		`"checkpointer": {"ttl": {"default_ttl": 0}}`:                "checkpointer.ttl.default_ttl: write a number of minutes above 0",
		`"checkpointer": {"ttl": {"default_ttl": "7d"}}`:             "checkpointer.ttl.default_ttl: write a number of minutes above 0",
		`"checkpointer": {"ttl": {"sweep_interval_minutes": 0.001}}`: "checkpointer.ttl.sweep_interval_minutes: write a number of minutes above 0",
		`"checkpointer": {"ttl": {"sweep_limit": 0.5}}`:              "checkpointer.ttl.sweep_limit: write a whole number",
		`"checkpointer": {"ttl": "7d"}`:                              "checkpointer.ttl: is text; write an object",
		`"store": {"ttl": {"refresh_on_read": 1}}`:                   "store.ttl.refresh_on_read: is a number; write true or false",
		`"store": {"ttl": {"default_ttl": -1}}`:                      "store.ttl.default_ttl: write a number of minutes above 0",
	} {
		_, _, err := Load(setup(t, `{"graphs": {"a": "./agent.py:g"}, `+section+`}`, nil))
		require.ErrorContains(t, err, want, section)
	}
}

func ptr[T any](v T) *T { return &v }
