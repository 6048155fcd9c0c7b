// Package certs serves TLS on a port with certificates that may be renewed while the server runs.
//
// It reads the files again when they change. New connections get the new certificate, and those that are open continue.
package certs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Options say where certificates are. All files are PEM.
type Options struct {
	Cert, Key string // chain of the server, its own certificate first, and its key
	ClientCA  string // certificates that sign those of clients, which then need one; "": clients need none
	Log       *slog.Logger
	Now       func() time.Time // nil: time.Now
	Every     time.Duration    // between looks at the files; 0: ten seconds
}

// Certificates are those of a port. They are safe for concurrent use.
type Certificates struct {
	opts    Options
	current atomic.Pointer[loaded]
	refused atomic.Int64 // when the log said that a client was refused, in Unix nanoseconds

	// Used by Run.
	seen   string    // digest of changed files at the last look
	failed string    // why files were not usable at the last look
	logged string    // the reason that is in the log; "": none
	warned time.Time // when the log said that the certificate expires
}

// loaded is what files had at one time.
type loaded struct {
	config *tls.Config
	leaf   *x509.Certificate
	digest string
}

// Load reads the files. Errors name the file and say what to do.
func Load(o Options) (*Certificates, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	c := &Certificates{opts: o}
	l, err := c.read()
	if err != nil {
		return nil, err
	}
	c.current.Store(l)
	c.expiry()
	return c, nil
}

// NotAfter is when the certificate of the server expires.
func (c *Certificates) NotAfter() time.Time { return c.current.Load().leaf.NotAfter }

// Names are the hosts that the certificate of the server is for.
func (c *Certificates) Names() []string {
	leaf := c.current.Load().leaf
	names := leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

func (c *Certificates) read() (*loaded, error) {
	cert, key, ca, err := c.files()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err == nil {
		err = cut(cert)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w; --tls-cert needs the certificate of this server, first in the file, and --tls-key its key without a password, both as PEM",
			c.opts.Cert, c.opts.Key, err)
	}
	l := &loaded{leaf: pair.Leaf, digest: digest(cert, key, ca)}
	l.config = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	if c.opts.ClientCA != "" {
		pool := x509.NewCertPool()
		if err := cut(ca); err != nil {
			return nil, fmt.Errorf("%s: %w", c.opts.ClientCA, err)
		}
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s contains no PEM certificate; --tls-client-ca needs those that sign the certificates of clients", c.opts.ClientCA)
		}
		l.config.ClientAuth, l.config.ClientCAs = tls.RequireAndVerifyClientCert, pool
	}
	return l, nil
}

// cut is the error for a file whose last block has no end: a chain without its last certificate is a valid one that clients refuse.
func cut(text []byte) error {
	if begun, ended := bytes.Count(text, []byte("-----BEGIN ")), bytes.Count(text, []byte("-----END ")); begun != ended {
		return errors.New("its last certificate is cut off")
	}
	return nil
}

func (c *Certificates) files() (cert, key, ca []byte, err error) {
	read := func(flag, name string) []byte {
		b, e := os.ReadFile(name)
		if e != nil && err == nil {
			err = fmt.Errorf("%s: %w; name a PEM file that the user of the server can read", flag, e)
		}
		return b
	}
	cert, key = read("--tls-cert", c.opts.Cert), read("--tls-key", c.opts.Key)
	if c.opts.ClientCA != "" {
		ca = read("--tls-client-ca", c.opts.ClientCA)
	}
	return cert, key, ca, err
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return string(h.Sum(nil))
}

// settled is how long changed files have to stay as they are before they are served, because a program may be writing them.
const settled = time.Second

// Run reads the files again when they change, and logs when the certificate is about to expire, until ctx ends.
func (c *Certificates) Run(ctx context.Context) error {
	timer := time.NewTimer(c.opts.Every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		next := c.opts.Every
		if c.renew(ctx) {
			next = min(next, settled)
		}
		c.expiry()
		timer.Reset(next)
	}
}

// renew loads files that have changed and were the same at the last look, and reports whether they are to be looked at again soon. Certificate and key may be replaced one
// after the other: what does not fit is an error only when it is still so at the next look.
func (c *Certificates) renew(ctx context.Context) (soon bool) {
	cert, key, ca, err := c.files()
	now := "unreadable"
	if err == nil {
		now = digest(cert, key, ca)
	}
	if now == c.current.Load().digest {
		if c.logged != "" {
			c.opts.Log.InfoContext(ctx, "the files of the certificate are again those that are served", "file", c.opts.Cert, "expires", c.NotAfter().UTC().Format(time.RFC3339))
		}
		c.seen, c.failed, c.logged = "", "", ""
		return false
	}
	if c.seen != now {
		c.seen = now
		return true
	}
	l, err := c.read()
	if err == nil && l.digest != now {
		c.seen = ""
		return true
	}
	if err != nil {
		why := err.Error()
		if c.failed != why {
			c.failed = why
			return true
		}
		if c.logged != why {
			c.logged = why
			c.opts.Log.ErrorContext(ctx, "the new certificate is not usable; the one from before is served", "error", err, "expires", c.NotAfter().UTC().Format(time.RFC3339))
		}
		return false
	}
	c.current.Store(l)
	c.seen, c.failed, c.logged, c.warned = "", "", "", time.Time{}
	c.opts.Log.InfoContext(ctx, "certificate reloaded", "file", c.opts.Cert, "expires", l.leaf.NotAfter.UTC().Format(time.RFC3339))
	return false
}

const (
	// soon is how long before its end a certificate is reported, at most a third of its lifetime.
	soon = 14 * 24 * time.Hour
	// warnEvery is the interval between reports.
	warnEvery = 24 * time.Hour
)

// expiry logs that the certificate expires soon, or has expired.
func (c *Certificates) expiry() {
	leaf, now := c.current.Load().leaf, c.opts.Now()
	left := leaf.NotAfter.Sub(now)
	if left > min(soon, leaf.NotAfter.Sub(leaf.NotBefore)/3) || !c.warned.IsZero() && now.Sub(c.warned) < warnEvery {
		return
	}
	c.warned = now
	attrs := []any{"file", c.opts.Cert, "expires", leaf.NotAfter.UTC().Format(time.RFC3339), "fix", "replace the files of --tls-cert and --tls-key; the server reads them again by itself"}
	if left <= 0 {
		c.opts.Log.Error("the certificate has expired; clients refuse it", attrs...)
		return
	}
	c.opts.Log.Warn("the certificate expires soon", attrs...)
}
