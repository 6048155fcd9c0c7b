package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"understudy/internal/serverurl"
	"understudy/internal/sockerr"
)

// newHealth is for images that have nothing else that could ask.
func newHealth() *cobra.Command {
	var address string
	var live bool
	var files trust
	timeout := timeValue(3 * time.Second)
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it is ready",
		Long: `Asks /readyz of a server on this machine, with --live its /livez, prints the answer, and ends with
exit code 1 when that is no or none comes. It is what the health check of a container runs.

Without --url it looks where the variables put a worker's health and a server, UNDERSTUDY_HEALTH_PORT
and then UNDERSTUDY_PORT (2024), on UNDERSTUDY_HOST: what listens first is asked. A server's path is
put before the route, so a proxy reports its own health at its path /understudy; a URL that ends in
/readyz, /livez or /ok is asked as it is.

With UNDERSTUDY_TLS_CERT set, it asks by https and does not compare the name in the certificate, which
is rarely that of this machine's own address. A URL is verified as browsers do, or by --ca.

Use --live where the unhealthy are killed: a server that waits for its database is alive, and not ready.`,
		Example: `  understudy health --url http://127.0.0.1:8123
  understudy health --live
  understudy health --url http://127.0.0.1:2025/understudy`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			addresses := []string{address}
			if address == "" {
				addresses = healthAddresses(os.Getenv)
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), time.Duration(timeout), fmt.Errorf("no answer within %s", &timeout))
			defer cancel()
			client, err := files.client(address == "")
			if err != nil {
				return usageError{err}
			}
			return askHealth(ctx, client, addresses, live, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&address, "url", os.Getenv("UNDERSTUDY_HEALTH_URL"), "`URL` of the server (default where the variables say) [$UNDERSTUDY_HEALTH_URL]")
	cmd.Flags().BoolVar(&live, "live", false, "ask whether it is alive, not whether it is ready")
	cmd.Flags().StringVar(&files.ca, "ca", "", "`FILE` of certificates (PEM) that vouch for the server (default those of the system)")
	cmd.Flags().StringVar(&files.cert, "cert", "", "`FILE` of a certificate (PEM) for a server that wants one of clients")
	cmd.Flags().StringVar(&files.key, "key", "", "`FILE` of the key (PEM) of --cert")
	cmd.Flags().Var(&timeout, "timeout", "time that the answer may take")
	return cmd
}

// healthAddresses are where servers and workers listen that have the same variables. An image has those of both, and runs one of them.
func healthAddresses(env func(string) string) (all []string) {
	host := env("UNDERSTUDY_HOST")
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if env("UNDERSTUDY_TLS_CERT") != "" {
		scheme = "https://"
	}
	server := env("UNDERSTUDY_PORT")
	if server == "" {
		server = "2024"
	}
	for _, port := range []string{env("UNDERSTUDY_HEALTH_PORT"), server} {
		if port != "" {
			all = append(all, scheme+net.JoinHostPort(host, port))
		}
	}
	return all
}

// askHealth asks the first of the addresses where anything listens.
func askHealth(ctx context.Context, client *http.Client, addresses []string, live bool, out io.Writer) error {
	var silent []string
	for _, address := range addresses {
		at, err := healthRoute(address, live)
		if err != nil {
			return usageError{err}
		}
		if err = askAt(ctx, client, at, out); !errors.Is(err, sockerr.Refused) {
			return err
		}
		silent = append(silent, at.Host)
	}
	return fmt.Errorf("nothing listens on %s; start a server, or name yours with --url", strings.Join(silent, " and "))
}

// healthRoute is what to ask of a server.
func healthRoute(address string, live bool) (*url.URL, error) {
	route, query, _ := strings.Cut(address, "?")
	if u, err := serverurl.Parse(route); err == nil {
		switch last := path.Base(u.Path); {
		case last == "readyz" && live:
			return nil, fmt.Errorf("%s asks for readiness, and --live does not; leave out one of them", u.Redacted())
		case last == "readyz", last == "livez", last == "ok":
			u.RawQuery = query
			return u, nil
		}
	}
	u, err := serverurl.Parse(address)
	if err != nil {
		return nil, err
	}
	if live {
		return u.JoinPath("livez"), nil
	}
	return u.JoinPath("readyz"), nil
}

func askAt(ctx context.Context, client *http.Client, at *url.URL, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return usageError{err}
	}
	res, err := client.Do(req)
	mismatch := serverurl.Mismatch(err)
	if err == nil {
		defer res.Body.Close()
		// Anything else is no answer of ours, and perhaps a page.
		if res.StatusCode == http.StatusBadRequest {
			text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
			mismatch = serverurl.MismatchOf(res.StatusCode, text)
		}
		if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusServiceUnavailable {
			_, err = io.Copy(out, io.LimitReader(res.Body, 4<<10))
			fmt.Fprintln(out)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s: %w; see that the address is right (--url), or wait longer (--timeout)", at.Redacted(), context.Cause(ctx))
	case mismatch != "":
		return fmt.Errorf("%s: %s, see --url", at.Redacted(), mismatch)
	case fixCertificate(err) != "":
		fix := fixCertificate(err)
		if errors.As(err, new(x509.UnknownAuthorityError)) {
			fix = "name the file of the CA that signed it with --ca or SSL_CERT_FILE"
		}
		return fmt.Errorf("%w; %s", err, fix)
	case err != nil:
		return fmt.Errorf("%w; see that the address is right (--url)", err)
	case res.StatusCode == http.StatusServiceUnavailable:
		return errors.New("the server is not ready")
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answered %s: see that the URL is that of a server, worker or proxy of understudy", at.Redacted(), res.Status)
	}
	return nil
}

// timeValue is a flag that says what to write, as those of the servers do.
type timeValue time.Duration

func (v *timeValue) String() string { return time.Duration(*v).String() }
func (v *timeValue) Type() string   { return "DURATION" }

func (v *timeValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return errors.New("write a time with its unit, such as 3s")
	}
	*v = timeValue(d)
	return nil
}
