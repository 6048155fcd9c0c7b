package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/certstest"
	"understudy/internal/config"
)

func TestCertificate(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	examine := func(left time.Duration, clients bool) Finding {
		cert, key := ca.Issue(t, "a", time.Now().Add(left))
		files := certstest.Files(t, cert, key, ca.PEM)
		cfg := config.Default(config.Serve)
		cfg.Server.TLSCert, cfg.Server.TLSKey = files[0], files[1]
		if clients {
			cfg.Server.TLSClientCA = files[2]
		}
		d := &doctor{}
		d.certificate(cfg)
		require.Len(t, d.findings, 1)
		return d.findings[0]
	}
	const day = 24 * time.Hour
	require.Equal(t, Problem, examine(-day, false).Verdict)
	require.Equal(t, Warning, examine(3*day, false).Verdict)
	fine := examine(40*day, true)
	require.Equal(t, Fine, fine.Verdict)
	require.Contains(t, fine.Text, "localhost, 127.0.0.1")
	require.Contains(t, fine.Text, "clients need one too")
	d := &doctor{}
	cfg := config.Default(config.Serve)
	d.certificate(cfg)
	require.Empty(t, d.findings)
	cfg.Server.TLSCert, cfg.Server.TLSKey = "none.pem", "none.pem"
	d.certificate(cfg)
	require.Equal(t, Problem, d.findings[0].Verdict)
}
