package app

import (
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"understudy/graph"
	"understudy/graph/python"
	process "understudy/internal/child"
	"understudy/internal/config"
	"understudy/internal/fleet"
	"understudy/storage/postgres"
)

// keeper reports this server to the others of its database.
func (s *Server) keeper(version, instance string) *fleet.Keeper {
	host, _ := os.Hostname()
	k := &fleet.Keeper{
		Self: fleet.Server{ID: instance, Version: version, Host: host, PID: os.Getpid(), Mode: []string{"dev", "serve", "worker", "proxy"}[s.cfg.Mode], Started: time.Now()},
		Load: func(me *fleet.Server) {
			me.Jobs, me.Running = s.runs.Load()
			me.Memory = process.ResidentMemory(os.Getpid())
			if s.pool != nil {
				me.Workers, me.WorkerMemory = s.pool.Workers(), s.pool.Memory()
				me.Blocked, me.BlockedAt = s.pool.Blocked()
			}
			me.Problems = fleet.Bounded(s.problems())
			if me.Jobs > 0 {
				me.Graphs = slices.DeleteFunc(s.graphs.Names(), func(name string) bool {
					most, limited := s.cfg.Workers.GraphConcurrency[name]
					return limited && most == 0 || s.pool != nil && s.pool.Broken(name) != nil
				})
			}
		},
		Ring: s.lines, Now: s.now, Log: s.log,
	}
	k.Self.Live = fleet.Place(s.cfg.Streams.RedisURL != "", s.cfg.Streams.RedisPrefix)
	if s.cfg.Mode != config.Worker {
		k.Self.Address = s.url()
	}
	if shared, ok := s.rows.(*postgres.Store); ok {
		k.Store, k.Self.Keys = shared, shared.ReadingKeys()
	}
	return k
}

// problems returns why graphs do not import, and why the last reload changed nothing.
func (s *Server) problems() (out []fleet.Problem) {
	broken := s.GraphProblems()
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		out = append(out, fleet.Problem{Graph: name, At: PlaceOf(s.cfg, broken[name]), Error: broken[name].Error()})
	}
	if failed := s.notReloaded.Load(); failed != nil {
		out = append(out, *failed...)
	}
	return out
}

// NoteReload notes how a reload ended, for those who look at the servers: nil forgets the failure of the one before.
func (s *Server) NoteReload(err error) {
	if err == nil {
		s.notReloaded.Store(nil)
		return
	}
	var failed []fleet.Problem
	refused, mistakes := (*python.ReloadError)(nil), config.Mistakes(nil)
	switch {
	case errors.As(err, &refused) && refused.Err == nil:
		for _, name := range slices.Sorted(maps.Keys(refused.Problems)) {
			failed = append(failed, fleet.Problem{Graph: name, At: PlaceOf(s.cfg, refused.Problems[name]), Error: refused.Problems[name].Error(), Reload: true})
		}
	case errors.As(err, &mistakes):
		for _, m := range mistakes {
			failed = append(failed, fleet.Problem{Error: m.String(), Reload: true})
		}
	default:
		failed = []fleet.Problem{{Error: err.Error(), Reload: true}}
	}
	s.notReloaded.Store(&failed)
}

// PlaceOf returns "file:line" of the innermost line of the traceback in an error that is the user's, relative to the folder of the configuration; "" when there is
// none.
func PlaceOf(cfg *config.Config, err error) string {
	var f *graph.Failure
	if !errors.As(err, &f) {
		return ""
	}
	return python.Place(f.Detail, cfg.CodeDirs())
}

// elsewhere reports whether a graph cannot be used here and another server of the database serves it: its runs are left to that one.
func (s *Server) elsewhere(name string) bool {
	return s.pool != nil && s.pool.Broken(name) != nil && s.fleet.Elsewhere(name)
}

// others returns the graphs whose runs other servers of the database execute; known is false while that is not known.
func (s *Server) others() (graphs []string, known bool) { return s.fleet.Executing() }
