package app

import (
	"context"
	"log/slog"
	"net"
	"time"

	"understudy/internal/certs"
	"understudy/internal/config"
)

// port adds TLS to a port, if it has certificates.
type port struct{ *certs.Certificates }

// certificates loads those that the settings name. now is the clock for their expiry; nil: time.Now.
func certificates(cfg *config.Config, log *slog.Logger, now func() time.Time) (port, error) {
	if cfg.Server.TLSCert == "" {
		return port{}, nil
	}
	c, err := certs.Load(certs.Options{Cert: cfg.Server.TLSCert, Key: cfg.Server.TLSKey, ClientCA: cfg.Server.TLSClientCA, Log: log, Now: now})
	return port{c}, err
}

// wrap returns listen, nil without certificates.
func (p port) wrap() func(net.Listener) net.Listener {
	if p.Certificates == nil {
		return nil
	}
	return p.Listen
}

func (p port) listen(ln net.Listener) net.Listener {
	if p.Certificates == nil {
		return ln
	}
	return p.Listen(ln)
}

func (p port) run(ctx context.Context) error {
	if p.Certificates == nil {
		return nil
	}
	return p.Run(ctx)
}

// scheme is how URLs of the server begin.
func scheme(cfg *config.Config) string {
	if cfg.Server.TLSCert != "" {
		return "https://"
	}
	return "http://"
}
