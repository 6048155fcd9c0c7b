package auth

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Client returns a client for documents of an issuer: small ones, without a redirect from https to http.
func Client() *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second, Transport: bounded{http.DefaultTransport},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 5 {
				return errors.New("more than 5 redirects")
			}
			if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
				return fmt.Errorf("redirect from https to %s", r.URL.Scheme)
			}
			return nil
		},
	}
}

// bounded fails responses above maxDocument: libraries read them to their end.
type bounded struct{ inner http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.inner.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, maxDocument}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the document is larger than %d bytes", maxDocument)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
