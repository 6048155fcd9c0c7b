package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

// Times in JSON logs have a unit, in groups too.
func TestJSONLogsHaveUnits(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{}
	cfg.Logging.JSON = true
	var out bytes.Buffer
	newLog(cfg, &out).With("lease", 15*time.Second).Info("x", "wait", time.Second, slog.Group("of", "limit", 90*time.Second), "count", 3)
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "1s", line["wait"])
	require.Equal(t, "15s", line["lease"])
	require.Equal(t, map[string]any{"limit": "1m30s"}, line["of"])
	require.EqualValues(t, 3, line["count"])
}
