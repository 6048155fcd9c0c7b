package app

import (
	"context"
	"fmt"
	"time"

	"understudy/access"
	"understudy/access/audit"
	"understudy/auth"
	"understudy/auth/signin"
	"understudy/id"
	"understudy/internal/app/backend"
	"understudy/internal/cursor"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server"
	"understudy/server/deerflow/gateway"
	"understudy/server/guard"
)

// protect makes the guard of a server whose langgraph.json asks for authentication, or that has DeerFlow's accounts.
func (s *Server) protect(ctx context.Context) (err error) {
	switch {
	case s.auth != nil:
	case s.gate != nil && s.cfg.Auth.Python.IsSet() && !s.cfg.Server.IgnoreAuth:
		s.auth = s.gate
	case s.cfg.Auth.Native() && !s.cfg.Server.IgnoreAuth:
		if s.auth, err = s.nativeAuth(); err != nil {
			return err
		}
	case s.deerflow != nil && !s.deerflow.Open:
		s.auth = accounts{s.deerflow, gateway.Owners}
	default:
		return nil
	}
	if s.cursors, err = s.sealer(ctx, ""); err != nil {
		return err
	}
	s.inside = access.NewInside()
	s.audit = audit.NewLog(audit.Options{Store: s.rows, Retention: s.cfg.Storage.AuditRetention, Now: s.now, Log: s.log, Exists: s.exists})
	s.guard = &guard.Guard{Policy: s.auth, Rows: s.rows.Threads(), Audit: s.audit, Log: s.log, Pace: guard.Pace{PerMinute: s.cfg.Limits.RunsPerMinute}}
	return nil
}

// sealer seals text for a purpose, in the same way on all servers of the database; "" are the places in lists.
func (s *Server) sealer(ctx context.Context, purpose string) (*cursor.Sealer, error) {
	key, err := s.rows.CursorKey(ctx)
	if err != nil {
		return nil, err
	}
	if purpose != "" {
		key = cursor.Derived(key, purpose)
	}
	return cursor.New(key)
}

// exists reports whether there is a thread, assistant or cron, whomever it belongs to.
func (s *Server) exists(ctx context.Context, resource, name string) (bool, error) {
	ctx = access.Everything(ctx)
	var err error
	switch resource {
	case "thread":
		_, err = s.rows.Threads().Thread(ctx, id.Thread(name))
	case "assistant":
		_, err = s.assistants.Get(ctx, id.Assistant(name))
	case "cron":
		_, err = s.runs.Crons().Get(ctx, id.Cron(name))
	default:
		return false, fmt.Errorf("audit: unknown resource %q", resource)
	}
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// ownerKey is the metadata of a resource that says who created it, for users that are authenticated natively.
const ownerKey = "owner"

// nativeAuth authenticates by API keys, tokens and sessions of browsers, as langgraph.json says.
func (s *Server) nativeAuth() (Auth, error) {
	cfg := &s.cfg.Auth
	n, p := &auth.Native{}, auth.Policy{}
	s.native = n
	s.signIn = &server.SignIn{APIKeys: cfg.Keys, Tokens: cfg.JWT != nil}
	if !cfg.Shared {
		p.Owner = &access.Owner{Key: ownerKey}
	}
	if cfg.Keys {
		n.Keys = auth.NewKeys(s.rows, time.Now, s.log)
	}
	if j := cfg.JWT; j != nil {
		var err error
		n.Tokens, err = backend.Tokens(j, s.log)
		if err != nil {
			return nil, fmt.Errorf("auth.jwt: %w", err)
		}
		s.tokens = n.Tokens
	}
	if o := cfg.OIDC; o != nil {
		n.Sessions = auth.NewSessions(auth.SessionOptions{Store: s.rows, Longest: o.Session, Idle: o.Idle, Now: time.Now, Log: s.log})
		s.sessions = n.Sessions
		s.signIn.Name, s.signIn.URL = o.Name, o.URL
		s.signIn.Desk = &signin.Desk{
			Provider: signin.NewProvider(signin.Options{Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Scopes: o.Scopes}),
			Sessions: n.Sessions, Claims: auth.ClaimNames{Identity: o.Identity, Name: o.DisplayName, Permissions: o.Permissions},
		}
	}
	return struct {
		*auth.Native
		auth.Policy
	}{n, p}, nil
}

// accounts are those of DeerFlow, each with what it owns.
type accounts struct {
	*gateway.Installation
	access.Owner
}

// admitCron asks whether a cron may make a run, as who created it; nil without authentication and DeerFlow. The run of a scheduled task says how DeerFlow's agent works in it.
func (s *Server) admitCron() func(ctx context.Context, c *run.Cron, req *run.Request) error {
	if s.guard == nil && s.deerflow == nil {
		return nil
	}
	return func(ctx context.Context, c *run.Cron, req *run.Request) error {
		if err := s.describeTask(c, req); err != nil { // its agent cannot be read, which its run reports; other crons must not wait for that
			s.log.WarnContext(ctx, "the start of a task's run does not describe its agent", "task_id", c.ID, "error", err)
		}
		if s.guard == nil {
			return nil
		}
		actor := access.OfRun(jsonobj.Of(c.Payload).Get("config")) // which requests of clients cannot set
		if actor == nil {                                          // made before the server asked for credentials
			actor = access.System
		}
		if s.native != nil && c.Account == "" && actor != access.System {
			if err := s.native.Holds(ctx, actor); err != nil {
				return err
			}
		}
		if s.deerflow != nil && actor != access.System {
			if _, all := s.auth.(accounts); all || c.Account != "" {
				if err := s.deerflow.Holds(ctx, actor); err != nil {
					return err
				}
			}
		}
		if ctx = access.With(ctx, actor); c.Account != "" && actor != access.System {
			ctx = access.EnterUnder(ctx, actor, "", gateway.Owners)
		}
		return s.guard.AdmitAgain(ctx, c.Thread, req)
	}
}
