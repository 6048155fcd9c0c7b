package app

import (
	"os"
	"slices"
	"time"

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
				me.Workers = s.pool.Workers()
			}
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

// elsewhere reports whether a graph cannot be used here and another server of the database serves it: its runs are left to that one.
func (s *Server) elsewhere(name string) bool {
	return s.pool != nil && s.pool.Broken(name) != nil && s.fleet.Elsewhere(name)
}

// others returns the graphs whose runs other servers of the database execute; known is false while that is not known.
func (s *Server) others() (graphs []string, known bool) { return s.fleet.Executing() }
