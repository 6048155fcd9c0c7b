package backend

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/internal/logtest"
)

// A start that waits for Redis says so within three seconds, and not when Redis is quick.
func TestRedisThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		cfg := &config.Config{}
		cfg.Streams.RedisURL = "redis://user:secret@redis.example:6379"
		away := errors.New("away")
		ask := func(takes time.Duration) func() error {
			return func() error { time.Sleep(takes); return away }
		}
		logger := slog.New(slog.NewTextHandler(log, nil))
		require.ErrorIs(t, waitForRedis(cfg, logger, ask(time.Second)), away)
		require.Empty(t, log.String())
		require.ErrorIs(t, waitForRedis(cfg, logger, ask(RedisPatience)), away)
		require.Equal(t, 2, strings.Count(log.String(), "Redis does not answer yet"), log.String())
		require.Contains(t, log.String(), "redis.example:6379")
		require.Contains(t, log.String(), "at_most=5s")
		require.NotContains(t, log.String(), "secret")
	})
}
