package guard

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"understudy/access"
	"understudy/access/audit"
	"understudy/auth"
	"understudy/internal/finding"
	"understudy/internal/fleet"
	"understudy/internal/jsonobj"
	"understudy/server"
)

// machines guards server.Fleet, which is for administrators.
type machines struct {
	*Guard
	inner server.Fleet
}

// admin refuses who has no permission understudy:admin. No policy is asked: LangGraph has no such resource.
func (g *machines) admin(ctx context.Context, what string) error {
	actor := access.From(ctx)
	switch {
	case actor == nil:
		return errNobody
	case actor == access.System || slices.Contains(actor.Permissions, auth.Admin):
		return nil
	}
	if g.Audit != nil {
		g.Audit.Add(audit.Entry{Event: audit.Denied, Identity: actor.Identity, Source: access.Source(ctx), Resource: what, Outcome: strconv.Itoa(http.StatusForbidden)})
	}
	return &access.Refusal{Status: http.StatusForbidden, Detail: jsonobj.Quote("Forbidden: " + what + " are for keys and tokens with the scope admin")}
}

func (g *machines) Servers(ctx context.Context) ([]fleet.Server, error) {
	if err := g.admin(ctx, "servers"); err != nil {
		return nil, err
	}
	return g.inner.Servers(ctx)
}

func (g *machines) Logs(ctx context.Context, q fleet.LogQuery) ([]fleet.Logged, error) {
	if err := g.admin(ctx, "logs"); err != nil {
		return nil, err
	}
	return g.inner.Logs(ctx, q)
}

func (g *machines) Follow(ctx context.Context, q fleet.LogQuery) (*fleet.Follower, []fleet.Logged, error) {
	if err := g.admin(ctx, "logs"); err != nil {
		return nil, nil, err
	}
	return g.inner.Follow(ctx, q)
}

// examined guards server.Doctor, which is for administrators: findings name files, addresses and settings.
type examined struct {
	*machines
	inner server.Doctor
}

func (g *examined) Examine(ctx context.Context) ([]finding.Finding, error) {
	if err := g.admin(ctx, "findings"); err != nil {
		return nil, err
	}
	return g.inner.Examine(ctx)
}
