package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
)

// fixCertificate returns what to do about a certificate of a server that cannot be verified; "" for other errors.
func fixCertificate(err error) string {
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case !errors.As(err, new(*tls.CertificateVerificationError)):
		return ""
	case errors.As(err, &host):
		return "write a host that the certificate is for in --url, or renew the certificate of the server for this one"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the server, or correct the clock of this machine"
	}
	return "name the file of the CA that signed it with SSL_CERT_FILE"
}

// trust are files for connections with TLS; "": those of the system, and none.
type trust struct{ ca, cert, key string }

// client returns a client that uses the files. own: the server is that of this machine's variables, whose certificate is for other names.
func (t trust) client(own bool) (*http.Client, error) {
	config := &tls.Config{InsecureSkipVerify: own && t.ca == ""} //nolint:gosec // the own server on the own machine
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca: %s contains no PEM certificate", t.ca)
		}
	}
	if (t.cert == "") != (t.key == "") {
		return nil, errors.New("--cert and --key belong together; set both")
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("--cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	return &http.Client{Transport: transport}, nil
}
