package signin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"understudy/internal/fault"
)

// wrong is errToken with a cause for the log.
func wrong(cause string) error {
	return fault.Wrap(fault.Unauthorized, errToken.Message, errors.New(cause))
}

// exchangeError says why a code got no token.
func exchangeError(err error) error {
	var r *oauth2.RetrieveError
	switch {
	case errors.As(err, &r) && r.Response != nil && r.Response.StatusCode >= http.StatusInternalServerError: // the body may repeat what was sent
		return errDown(fmt.Errorf("the token endpoint answers with status %d", r.Response.StatusCode))
	case unreachable(err):
		return errDown(err)
	case errors.As(err, &r) && r.ErrorCode == "invalid_grant":
		return fault.Wrap(fault.Unauthorized, "This sign-in was used before or has expired; begin again", errors.New("invalid_grant"))
	case errors.As(err, &r):
		return fault.Wrap(fault.Unauthorized, errToken.Message, errors.New("the token endpoint refused the client or the code: "+code(r.ErrorCode)))
	}
	return fault.Wrap(fault.Unauthorized, errToken.Message, err)
}

// tokenError says why a token was not accepted.
func tokenError(err error) error {
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return fault.Wrap(fault.Unauthorized, "The sign-in took too long, or the clocks of the provider and the server differ; begin again", err)
	case unreachable(err):
		return errDown(err)
	}
	return fault.Wrap(fault.Unauthorized, errToken.Message, err)
}

// unreachable reports whether an error is of the network.
func unreachable(err error) bool {
	var u *url.Error
	var n net.Error
	return errors.As(err, &u) || errors.As(err, &n) || errors.Is(err, context.DeadlineExceeded)
}
