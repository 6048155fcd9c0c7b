package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"understudy/internal/fault"
	"understudy/internal/serverurl"
)

const (
	// firstAnswer is how long a server may take for a page with one thread, and laterAnswer for
	// another request, whose answer may be large.
	firstAnswer = 30 * time.Second
	laterAnswer = 5 * time.Minute
)

// again is what to do about a server that has answered before, and does not now.
const again = "run this again when it answers, it continues where it stopped"

// ask sends a request and returns the body of its answer.
func (s *Server) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	defer s.wait(fmt.Sprintf("waiting for %s to answer %s %s", s.Name(), method, path))()
	ctx, cancel := context.WithTimeoutCause(ctx, laterAnswer, fmt.Errorf("no answer within %s", laterAnswer))
	defer cancel()
	r, err := retryablehttp.NewRequestWithContext(ctx, method, s.base+path, raw)
	if err != nil {
		return nil, err
	}
	for k, v := range s.header {
		r.Header[k] = v
	}
	r.Header.Set("Content-Type", "application/json")
	reached := s.reached
	resp, err := s.http.Do(r)
	if err != nil {
		var at *url.Error // which repeats the address
		if errors.As(err, &at) && ctx.Err() == nil {
			err = at.Err
		} else if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if reached {
			return nil, fault.Newf(fault.Unavailable, "%s does not answer any more (%s: %v); %s", s.Name(), path, err, again)
		}
		if why := serverurl.Mismatch(err); why != "" {
			return nil, fault.Newf(fault.Unavailable, "%s cannot be reached: %v: %s", s.Name(), err, why)
		}
		return nil, fault.Newf(fault.Unavailable, "%s cannot be reached: %v; see that it runs, and that the address is right", s.Name(), err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if len(answer) > maxAnswer {
		return nil, fault.Newf(fault.Unavailable, "the response of %s to %s is larger than %d bytes", s.Name(), path, maxAnswer)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fault.Newf(fault.Unavailable, "%s broke off (%s: %v); %s", s.Name(), path, err, again)
	}
	if why := serverurl.MismatchOf(resp.StatusCode, answer); why != "" {
		return nil, fault.Newf(fault.Unavailable, "%s cannot be reached: %s", s.Name(), why)
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s refuses access (%s): pass credentials with --header 'Authorization: …' or --header 'X-Api-Key: …'", s.Name(), resp.Status)
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return nil, fault.Newf(fault.NotFound, "%s has no %s (%s): is it the address of a LangGraph Server?", s.Name(), path, resp.Status)
	case reached && slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, resp.StatusCode):
		return nil, fault.Newf(fault.Unavailable, "%s returns %s for %s; %s", s.Name(), resp.Status, path, again)
	case bytes.HasPrefix(bytes.TrimSpace(answer), []byte("<")):
		return nil, fmt.Errorf("%s responds to %s with a page (%s): is it the address of a LangGraph Server, and does it run behind its proxy?", s.Name(), path, resp.Status)
	case resp.StatusCode >= 400:
		return nil, fmt.Errorf("%s returns %s for %s: %s", s.Name(), resp.Status, path, answer[:min(len(answer), 300)])
	}
	if !json.Valid(answer) {
		return nil, fmt.Errorf("%s responds to %s with invalid JSON: is it the address of a LangGraph Server?", s.Name(), path)
	}
	return answer, nil
}
