package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/compat"
	"understudy/internal/jsonscan"
)

// Offline decides who may read recordings while the upstream is unavailable. The upstream then cannot check access to a thread, so
// offline reads work only for upstreams that were seen to answer an anonymous caller, and only for callers that send nothing to be
// checked. The last result is kept in a file, so that it survives a restart.
type Offline struct {
	up   *Upstream
	file string

	mu    sync.Mutex
	known time.Time // last anonymous access; zero: none, or refused since
}

// offlineFile is in the folder of the recordings.
const offlineFile = "upstream-is-open"

// NewOffline returns an Offline that keeps its file in a folder; "": without a file.
func NewOffline(up *Upstream, dir string) *Offline {
	o := &Offline{up: up}
	if dir != "" {
		o.file = filepath.Join(dir, offlineFile)
	}
	return o
}

// ErrGuarded: the upstream requires credentials.
var ErrGuarded = errors.New("the upstream requires credentials")

// Check calls the upstream without credentials. It returns ErrGuarded if the upstream demands them. Any other error means that it does
// not answer; since is then the time of the last anonymous access, zero if there was none.
func (o *Offline) Check(ctx context.Context) (since time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, q := range []struct{ method, path, body string }{
		{http.MethodPost, "/threads/search", `{"limit":1}`},
		{http.MethodGet, "/threads/00000000-0000-4000-8000-000000000000", ""},
	} {
		status, _, answer, err := o.up.Ask(ctx, nil, q.method, q.path, []byte(q.body))
		switch {
		case err != nil:
			return o.remembered(), err
		// A redirect, or a page instead of JSON, is how gateways request a login.
		case status == http.StatusUnauthorized || status == http.StatusForbidden || status >= 300 && status < 400 || status == http.StatusOK && !jsonscan.Valid(answer):
			return time.Time{}, errors.Join(fmt.Errorf("%w: %s %s without credentials returned %d", ErrGuarded, q.method, q.path, status), o.close())
		case status != http.StatusOK && status != http.StatusNotFound:
			return o.remembered(), fmt.Errorf("%s %s returned %d", q.method, q.path, status)
		}
	}
	return time.Now(), o.opened(time.Now())
}

// Watch repeats Check at an interval until ctx ends: an upstream that begins to demand credentials disables offline reads, an open one
// enables them.
func (o *Offline) Watch(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			_, _ = o.Check(ctx) // Check stores the result
		}
	}
}

func (o *Offline) opened(at time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = at
	if o.file == "" {
		return nil
	}
	return os.WriteFile(o.file, []byte(at.UTC().Format(time.RFC3339)+"\n"), 0o600)
}

func (o *Offline) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = time.Time{}
	if o.file == "" {
		return nil
	}
	if err := os.Remove(o.file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remembered reads the file.
func (o *Offline) remembered() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known.IsZero() && o.file != "" {
		if text, err := os.ReadFile(o.file); err == nil {
			o.known, _ = time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
		}
	}
	return o.known
}

// open reports whether a call may be answered while the upstream is unavailable.
func (o *Offline) open(x *exchange) bool {
	return o != nil && anonymous(x.in) && !o.remembered().IsZero()
}

// harmless are headers that every client sends. An upstream's custom auth may depend on any other header.
var harmless = map[string]bool{
	"Accept": true, "Accept-Charset": true, "Accept-Encoding": true, "Accept-Language": true, "Cache-Control": true, "Connection": true, "Content-Length": true,
	"Content-Type": true, "Dnt": true, "If-Modified-Since": true, "If-None-Match": true, "Keep-Alive": true, "Origin": true, "Pragma": true, "Priority": true,
	"Referer": true, "Te": true, "Upgrade-Insecure-Requests": true, "User-Agent": true, "X-Request-Id": true,
	"X-Understudy-Overlay": true, "Forwarded": true, "Via": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Forwarded-Port": true, "X-Real-Ip": true,
}

// anonymous reports whether a call has nothing that could be credentials.
func anonymous(r *http.Request) bool {
	for name := range r.Header {
		if !harmless[name] && !strings.HasPrefix(name, "Sec-") && !strings.HasPrefix(name, "Access-Control-") {
			return false
		}
	}
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false
	}
	for name := range params {
		if !slices.Contains(pageParams, name) {
			return false
		}
	}
	return true
}

// pageParams are the parameters of the routes for messages and events.
var pageParams = []string{"limit", "after_seq", "before_seq", "event_types", compat.OverlayParam, compat.MarkersParam}
