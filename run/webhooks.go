package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Webhooks is the policy for addresses that clients name, and what is sent to them. The zero value is LangGraph Server's default:
// http and https anywhere but loopback and link-local addresses.
type Webhooks struct {
	AllowLoopback  bool
	RequireHTTPS   bool
	AllowedDomains []string // "example.com" or "*.example.com"; empty: any
	AllowedPorts   []int    // empty: any
	MaxURLLength   int      // in bytes; 0: 4096
	RefusePrivate  bool     // private ranges too
	AllowedFields  []string // of what is sent; nil: all
	Headers        map[string]string
	Disabled       bool // addresses are checked, but nothing is sent
}

var errAddress = errors.New("its address is loopback, link-local, private or otherwise not allowed")

// Check refuses addresses that are no address or that the policy forbids. Host names are checked again when they are resolved.
func (w *Webhooks) Check(address string) error {
	if address == "" {
		return nil
	}
	invalid := func(why string) error {
		return fault.Newf(fault.Unprocessable, "Invalid webhook URL: %s", why)
	}
	limit := w.MaxURLLength
	if limit == 0 {
		limit = 4096
	}
	if len(address) > limit {
		return invalid("too long")
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return invalid("it must be an absolute http or https URL")
	}
	if w.RequireHTTPS && u.Scheme != "https" {
		return invalid("it must use https (webhooks.url.require_https)")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if len(w.AllowedDomains) > 0 && !slices.ContainsFunc(w.AllowedDomains, func(d string) bool {
		d = strings.ToLower(d)
		if rest, wild := strings.CutPrefix(d, "*."); wild {
			return strings.HasSuffix(host, "."+rest)
		}
		return host == d
	}) {
		return invalid("its host is not allowed (webhooks.url.allowed_domains)")
	}
	if len(w.AllowedPorts) > 0 {
		port := 80
		if u.Scheme == "https" {
			port = 443
		}
		if p := u.Port(); p != "" {
			if port, err = strconv.Atoi(p); err != nil {
				return invalid("its port is no number")
			}
		}
		if !slices.Contains(w.AllowedPorts, port) {
			return invalid("its port is not allowed (webhooks.url.allowed_ports)")
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil && !w.allowed(ip) || host == "localhost" && !w.AllowLoopback {
		return invalid(errAddress.Error())
	}
	return nil
}

func (w *Webhooks) allowed(ip netip.Addr) bool {
	ip = embedded(ip)
	switch {
	case ip.IsLoopback():
		return w.AllowLoopback
	case ip.IsLinkLocalUnicast(), ip.IsMulticast(), ip.IsUnspecified():
		return false
	case ip.IsPrivate():
		return !w.RefusePrivate
	}
	return true
}

var (
	translated = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::/96"), netip.MustParsePrefix("::ffff:0:0:0/96")}
	sixToFour  = netip.MustParsePrefix("2002::/16")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
)

// embedded is the IPv4 address that an IPv6 address stands for, where a network may carry it there: mapped, compatible and translated (NAT64) addresses
// and 6to4. Other addresses are returned as they are.
func embedded(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if !ip.Is6() || ip.IsLoopback() || ip.IsUnspecified() {
		return ip
	}
	b := ip.As16()
	switch {
	case slices.ContainsFunc(translated, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6]))
	case localNAT64.Contains(ip): // a /48 puts the address around byte 8, a /96 at the end: either may be in use, so neither may be forbidden
		if split := netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}); b[12]|b[13]|b[14]|b[15] == 0 {
			return split
		}
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

// client sends to addresses that the policy allows: the address is checked once more on what it resolved to, at the moment of the
// dial, so that a name cannot change its mind in between. Redirects are not followed.
func (w *Webhooks) client() *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if !w.allowed(ap.Addr()) {
			return errAddress
		}
		return nil
	}}
	return &http.Client{
		Timeout:       15 * time.Second,
		Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// delivery is the outbox entry of a run that ended. It is written with the end itself, so it is neither lost nor sent for nothing.
func (s *Service) delivery(r *Run, values, failure json.RawMessage, now time.Time) *Delivery {
	body := jsonobj.Of(s.Wire.Run(r))
	body.SetText("run_started_at", r.StartedAt.UTC().Format(timeLayout))
	body.SetText("run_ended_at", r.EndedAt.UTC().Format(timeLayout))
	if values == nil {
		values = null
	}
	body.Set("values", values)
	if failure != nil {
		body.Set("error", failure)
	}
	if s.Webhooks.AllowedFields != nil {
		allowed := &jsonobj.Object{}
		body.Each(func(k string, v json.RawMessage) {
			if slices.Contains(s.Webhooks.AllowedFields, k) {
				allowed.Set(k, v)
			}
		})
		body = allowed
	}
	return &Delivery{Thread: r.Thread, Run: r.ID, URL: r.Kwargs.Webhook, Origin: origin(r.Kwargs.Webhook), Body: body.JSON(), Due: now}
}

// timeLayout is how the API writes times.
const timeLayout = "2006-01-02T15:04:05.000000-07:00"

const maxDeliveries = 6 // attempts: at once, and after 1 s, 5 s, 25 s, 2 min, 10 min

// send makes one attempt and writes what came of it.
func (s *Service) send(ctx context.Context, client *http.Client, d *Delivery) (slow bool) {
	began := time.Now()
	err := s.post(ctx, client, d)
	slow = time.Since(began) > slowReceiver
	if ctx.Err() != nil {
		return slow // it stays in the outbox
	}
	d.Attempts++
	if err == nil {
		s.metrics.delivered.Inc()
	} else {
		s.metrics.undelivered.Inc()
	}
	done := err == nil || d.Attempts >= maxDeliveries || errors.Is(err, errAddress)
	if err != nil {
		level := s.log.WarnContext
		if done {
			level = s.log.ErrorContext
		}
		level(ctx, "webhook not delivered", "run_id", d.Run, "attempt", d.Attempts, "given_up", done, "error", err)
	}
	werr := s.Store.Write(ctx, func(tx Tx) error {
		if done {
			return tx.DeleteDelivery(d.ID)
		}
		wait := time.Second
		for range d.Attempts - 1 {
			wait *= 5
		}
		d.Due = s.Now().Add(min(wait, 10*time.Minute))
		return tx.UpdateDelivery(d)
	})
	if werr != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "cannot write the outbox", "run_id", d.Run, "error", werr)
	}
	return slow
}

func (s *Service) post(ctx context.Context, client *http.Client, d *Delivery) error {
	body := jsonobj.Of(d.Body)
	if allowed := s.Webhooks.AllowedFields; allowed == nil || slices.Contains(allowed, "webhook_sent_at") {
		body.SetText("webhook_sent_at", s.Now().UTC().Format(timeLayout))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body.JSON()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range s.Webhooks.Headers {
		req.Header.Set(k, v)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 64<<10); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the receiver answered %s", res.Status)
	}
	return nil
}
