package app

import (
	"context"
	"net/http"
	"slices"
	"time"

	"understudy/access"
	"understudy/access/audit"
	"understudy/assistant"
	"understudy/auth"
	"understudy/deerflow/lead"
	"understudy/deerflow/memory"
	"understudy/deerflow/sandbox"
	"understudy/eventstore/follow"
	"understudy/eventstore/mirror"
	"understudy/gate"
	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/app/backend"
	"understudy/internal/app/graphs"
	"understudy/internal/cursor"
	"understudy/run/service"
	"understudy/run/usage"
	"understudy/server"
	"understudy/server/deerflow/gateway"
	"understudy/server/guard"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/changes"
	"understudy/thread/search"
)

// execution is what executes graphs, and the rest of a deployment that is Python.
type execution struct {
	graphs     *graph.Registry
	declared   graphs.Declared
	pool       *python.Pool     // nil when no graph needs one
	gate       *gate.Gate       // nil when nothing needs one
	encryption *gate.Encryption // nil without encryption.path. The database closes it
	loaded     func(name string, err error, took time.Duration)
}

// protection decides who may do what. All of it is nil without authentication.
type protection struct {
	auth     Auth
	native   *auth.Native   // nil: not by API keys, tokens and sessions
	tokens   *auth.Tokens   // nil when none are accepted
	sessions *auth.Sessions // of browsers; nil when none are accepted
	signIn   *server.SignIn // nil unless the server authenticates by itself
	guard    *guard.Guard
	audit    *audit.Log
	inside   *access.Inside
	cursors  *cursor.Sealer // of lists that several callers read
	ratings  *cursor.Sealer // of addresses for feedback
}

// logFollowers follow the logs of threads.
type logFollowers struct {
	followers followers
	observers []*follow.Loop
	observing []string       // their names
	mirror    *mirror.Mirror // nil when there is none
	models    *follow.Loop   // keeps the read models of the log
	counts    *follow.Loop   // adds up what runs used
	indexer   *search.Indexer
	searches  bool // indexer runs
}

// services are what the API's routes call.
type services struct {
	assistants *assistant.Service
	threads    *thread.Service
	events     *thread.Log
	runs       *service.Service
	items      *store.Service
	changes    *changes.Hub
	search     *search.Service
	usage      *usage.Service
}

// deerflowParts serve DeerFlow's Gateway API and its agent. All of it is nil without them.
type deerflowParts struct {
	deerflow *gateway.Installation
	sandbox  *sandbox.Local
	python   *pythonTools
	lead     *lead.Graph
	learner  *memory.Learner
	files    *follow.Loop // deletes files of deleted threads
	left     chan leftFiles
	clients  *http.Transport // of embedded clients, which are as many as the program asks for
}

// part is what runs until its context ends.
type part = func(context.Context) error

// lower are the parts that run until the last run has ended: workers, streams, and what follows the storage.
func (s *Server) lower() []part {
	return slices.Concat([]part{withoutCanceled(s.bridge.Run), s.followChanges, s.usage.Run, s.fleet.Run},
		s.execution.lower(), s.protection.lower(), s.logFollowers.lower(s.rows), s.lowerDeerFlow())
}

func (e *execution) lower() (parts []part) {
	if e.pool != nil {
		parts = append(parts, withoutCanceled(e.pool.Run))
	}
	if e.gate != nil {
		parts = append(parts, func(ctx context.Context) error { _ = e.gate.Run(ctx); return nil }) // Ready has its error
	}
	return parts
}

func (p *protection) lower() (parts []part) {
	if p.audit != nil {
		parts = append(parts, p.audit.Run)
	}
	if p.native != nil && p.native.Keys != nil {
		parts = append(parts, p.native.Keys.Run)
	}
	return parts
}

func (l *logFollowers) lower(rows backend.Database) []part {
	parts := []part{l.models.Run, l.counts.Run}
	if l.searches {
		parts = append(parts, func(ctx context.Context) error { return l.indexer.Run(ctx, rows) })
	}
	if l.mirror != nil {
		parts = append(parts, l.mirror.Run)
	}
	for _, o := range l.observers {
		parts = append(parts, o.Run)
	}
	return parts
}

func (s *Server) lowerDeerFlow() []part {
	if s.files == nil {
		return nil
	}
	return []part{s.files.Run, s.removeLeftFiles}
}

// upper are the parts that make work, and end first: requests, the queue, sweeps.
func (s *Server) upper() []part {
	parts := []part{
		s.runs.Run, s.watchGraphs, s.watchStart, withoutCanceled(s.threads.Sweep), withoutCanceled(s.items.Sweep), withoutCanceled(s.items.Embed),
	}
	if s.gate != nil {
		parts = append(parts, s.awaitGate)
	}
	if s.http != nil {
		parts = append(parts, func(ctx context.Context) error { return s.http.Serve(ctx, s.certs.listen(s.listener)) }, s.certs.run)
	}
	if s.components != nil {
		parts = append(parts, s.components.Run)
	}
	if s.tokens != nil {
		parts = append(parts, s.tokens.Run)
	}
	if s.sessions != nil {
		parts = append(parts, withoutCanceled(s.sessions.Run))
	}
	if s.learner != nil {
		parts = append(parts, s.learner.Run, s.followAccounts)
	}
	return parts
}

// withoutCanceled is a part for which the end of its context is no error.
func withoutCanceled(run part) part {
	return func(ctx context.Context) error { return notCanceled(run(ctx)) }
}
