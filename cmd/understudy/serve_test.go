package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The log begins with what is used, and with what was likely meant otherwise: a misspelt variable would make a data folder in silence.
func TestStartSaysWhatIsUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}}, "env": {"UNDERSTUDY_LEASEE": "1m"}}`), 0o600))
	t.Setenv("UNDERSTUDY_DATABASE_UR", "postgres://us:s3cret@db/us")
	for _, command := range []string{"dev", "serve", "worker"} {
		args := []string{
			command, "--config", file, "--log-json", "--database-url", "postgres://us:s3cret@127.0.0.1:1/name?connect_timeout=1",
			"--redis-url", "redis://:s3cret@cache:6380/2", "--redis-prefix", "mine",
		}
		if command != "worker" {
			args = append(args, "--port", "0", "--data", "/some/where")
		}
		var out, errs bytes.Buffer
		root := newRoot(&out, &errs)
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		require.ErrorContains(t, err, "name on 127.0.0.1:1", command)
		log := errs.String()
		require.NotContains(t, err.Error()+log, "s3cret")
		require.Contains(t, log, `"key":"UNDERSTUDY_DATABASE_UR","problem":"unknown variable; write UNDERSTUDY_DATABASE_URL"`)
		require.Contains(t, log, `"key":"UNDERSTUDY_LEASEE","problem":"unknown variable in env of the file; write UNDERSTUDY_LEASE"`)
		require.Equal(t, command != "worker", strings.Contains(log, `"key":"--data","problem":"/some/where is not used: all data is in the database of --database-url"`), log)
		var started map[string]any
		for line := range strings.Lines(log) {
			if strings.Contains(line, `"msg":"starting"`) {
				require.Nil(t, started, "one line")
				require.NoError(t, json.Unmarshal([]byte(line), &started))
			}
		}
		for key, want := range map[string]string{
			"level": "INFO", "version": version(), "config": file, "database": "name on 127.0.0.1:1", "redis": "cache:6380", "redis_prefix": "mine",
		} {
			require.Equal(t, want, started[key], key)
		}
	}
	// Errors caused by a misspelt variable are reported together with it.
	var out, errs bytes.Buffer
	root := newRoot(&out, &errs)
	root.SetArgs([]string{"worker", "--config", file})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "--database-url: missing")
	require.Contains(t, errs.String(), "warning: UNDERSTUDY_DATABASE_UR: unknown variable")
}
