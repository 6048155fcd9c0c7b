package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/certstest"
)

// What to do about a certificate depends on what is wrong with it.
func TestFixCertificate(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	trusting := ca.Client(t, nil, nil)
	for name, c := range map[string]struct {
		host    string
		until   time.Time
		trusted bool
		want    string
	}{
		"unknown":      {"127.0.0.1", time.Now().Add(time.Hour), false, "name the file of the CA that signed it with"},
		"another host": {"localhost.example", time.Now().Add(time.Hour), true, "write a host that the certificate is for in --url"},
		"expired":      {"127.0.0.1", time.Now().Add(-time.Minute), true, "renew the certificate of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cert, key := ca.Issue(t, c.host, c.until)
			pair, err := tls.X509KeyPair(cert, key)
			require.NoError(t, err)
			srv := httptest.NewUnstartedServer(http.NotFoundHandler())
			srv.Config.ErrorLog = nil
			srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			srv.StartTLS()
			defer srv.Close()
			config := &tls.Config{RootCAs: x509.NewCertPool()}
			if c.trusted {
				config.RootCAs = trusting.RootCAs
			}
			if name == "another host" {
				config.ServerName = "elsewhere.example"
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			defer client.CloseIdleConnections()
			_, err = client.Get(srv.URL) //nolint:noctx // of a test
			require.ErrorContains(t, err, "certificate")
			require.Contains(t, fixCertificate(err), c.want)
			at, err := url.Parse(srv.URL)
			require.NoError(t, err)
			err = askAt(t.Context(), client, at, io.Discard)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "see that the address is right")
		})
	}
	require.Empty(t, fixCertificate(io.EOF))
}
