package app

import (
	"context"

	"understudy/access"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server"
	"understudy/server/deerflow"
	"understudy/server/guard"
)

// protect makes the guard of a server whose langgraph.json asks for authentication, or that has DeerFlow's accounts.
func (s *Server) protect() {
	switch {
	case s.auth != nil:
	case s.gate != nil && s.cfg.Auth.Python.IsSet() && !s.cfg.IgnoreAuth:
		s.auth = s.gate
	case s.deerflow != nil && !s.deerflow.Open:
		s.auth = accounts{s.deerflow, access.Owner{Key: deerflow.OwnerKey}}
	default:
		return
	}
	s.inside = access.NewInside()
	s.guard = &guard.Guard{Policy: s.auth, Rows: s.rows.Threads()}
}

// accounts are those of DeerFlow, each with what it owns.
type accounts struct {
	*server.DeerFlow
	access.Owner
}

// admitCron asks whether a cron may make a run, as who created it; nil without authentication.
func (s *Server) admitCron() func(ctx context.Context, c *run.Cron, req *run.Request) error {
	if s.guard == nil {
		return nil
	}
	return func(ctx context.Context, c *run.Cron, req *run.Request) error {
		actor := access.OfRun(jsonobj.Of(c.Payload).Get("config")) // which requests of clients cannot set
		if actor == nil {                                          // made before the server asked for credentials
			actor = access.System
		}
		return s.guard.AdmitAgain(access.With(ctx, actor), c.Thread, req)
	}
}
