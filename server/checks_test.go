package server

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
	"understudy/server/internal/web"
)

// A server that starts is not ready yet; one that stays so, or was ready before, is a reason to warn. Each change is logged once.
func TestChecksAreLoggedWhenTheyChange(t *testing.T) {
	t.Parallel()
	bad := errors.New("down")
	for name, c := range map[string]struct {
		results []error // one every twenty seconds
		want    string
	}{
		"ready at once":   {[]error{nil, nil}, ""},
		"a slow start":    {[]error{bad, bad, nil, nil}, "INFO not ready yet, INFO ready"},
		"no start":        {[]error{bad, bad, bad, bad, bad, nil}, "INFO not ready yet, WARN not ready, INFO ready"},
		"a failure":       {[]error{nil, bad, bad, nil, bad}, "WARN not ready, INFO ready, WARN not ready"},
		"asked for later": {[]error{nil, nil, nil, bad}, "WARN not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := &logtest.Buffer{}
				s := &Server{
					Transport: web.New(web.Config{Logger: slog.New(slog.NewTextHandler(log, nil)), Registry: prometheus.NewRegistry()}),
					checks:    checks{began: time.Now(), last: map[string]health{}},
				}
				for _, err := range c.results {
					s.noteCheck("storage", err)
					time.Sleep(20 * time.Second)
				}
				var lines []string
				for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
					if _, rest, ok := strings.Cut(line, " level="); ok {
						level, text, _ := strings.Cut(rest, " msg=")
						text, _, _ = strings.Cut(text, " check=")
						lines = append(lines, level+" "+strings.Trim(text, `"`))
					}
				}
				require.Equal(t, c.want, strings.Join(lines, ", "))
			})
		})
	}
}
