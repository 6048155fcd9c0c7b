// Package signin signs people in with a browser at an OpenID provider, by authorization code with PKCE, state and nonce.
//
// It keeps nothing between the two requests of a sign-in: a cookie of the browser ties them together, so that any server can finish what another one began.
// It knows no HTTP server: package server has the routes, sets cookies and shows errors.
package signin

import (
	"context"
	"errors"

	"understudy/access"
	"understudy/auth"
	"understudy/internal/fault"
)

// Desk opens sessions for those who signed in at a provider.
type Desk struct {
	*Provider
	Sessions *auth.Sessions
	Claims   auth.ClaimNames
}

// Open finishes a sign-in and opens a session.
func (d *Desk) Open(ctx context.Context, t Ticket, r Response, callback string) (*auth.Opened, error) {
	claims, err := d.Finish(ctx, t, r, callback)
	if err != nil {
		return nil, err
	}
	who, err := d.Claims.Person(claims)
	var refusal *access.Refusal
	if errors.As(err, &refusal) {
		return nil, fault.Wrap(fault.Unauthorized, refusal.Text(), errors.New("see auth.oidc.identity_claim in langgraph.json"))
	} else if err != nil {
		return nil, err
	}
	return d.Sessions.Open(ctx, *who)
}
