package doctor

import (
	"strings"
	"time"

	"understudy/internal/certs"
	"understudy/internal/config"
)

// expiring is how long before its end a certificate gets a warning.
const expiring = 14 * 24 * time.Hour

// certificate checks that of the port.
func (d *doctor) certificate(cfg *config.Config) {
	if cfg.Server.TLSCert == "" {
		return
	}
	c, err := certs.Load(certs.Options{Cert: cfg.Server.TLSCert, Key: cfg.Server.TLSKey, ClientCA: cfg.Server.TLSClientCA})
	if err != nil {
		d.say("tls", Problem, err.Error(), "correct "+cfg.Where("tls-cert")+" and "+cfg.Where("tls-key")+"; the server does not start with these files")
		return
	}
	names, end := strings.Join(c.Names(), ", "), c.NotAfter().UTC().Format(time.DateOnly)
	if names == "" {
		names = "no host name (it has no subjectAltName, so that clients refuse it)"
	}
	const renew = "replace the files; a running server reads them again"
	switch left := time.Until(c.NotAfter()); {
	case left <= 0:
		d.say("tls", Problem, "the certificate for "+names+" expired on "+end, renew)
	case left < expiring:
		d.say("tls", Warning, "the certificate for "+names+" expires on "+end, renew)
	case cfg.Server.TLSClientCA != "":
		d.say("tls", Fine, "certificate for "+names+", valid until "+end+"; clients need one too", "")
	default:
		d.say("tls", Fine, "certificate for "+names+", valid until "+end, "")
	}
}
