package compat

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"understudy/internal/fault"
	"understudy/internal/fleet"
)

const (
	// LogsEvent is the name of the events with lines of logs.
	LogsEvent = "logs"

	defaultLines = 200
	maxLines     = 2000
)

// AppendServers appends {"servers": […]}.
func AppendServers(dst []byte, list []fleet.Server) []byte {
	r := newRow(dst, nil)
	r.key("servers")
	r.dst = AppendList(r.dst, list, func(dst []byte, s fleet.Server) []byte {
		r := newRow(dst, nil)
		r.text("id", s.ID)
		r.text("version", s.Version)
		r.textOrNull("address", s.Address)
		r.text("host", s.Host)
		r.int("pid", s.PID)
		r.text("mode", s.Mode)
		r.time("started_at", s.Started)
		r.time("heartbeat_at", s.Beat)
		r.int("jobs", s.Jobs)
		r.int("running", s.Running)
		r.int("workers", s.Workers)
		r.int("memory_bytes", int(s.Memory))
		r.key("worker_memory_bytes")
		r.dst = AppendList(r.dst, s.WorkerMemory, func(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) })
		r.int("blocked", s.Blocked)
		r.textOrNull("blocked_at", s.BlockedAt)
		r.key("problems")
		r.dst = AppendList(r.dst, s.Problems, appendProblem)
		r.raw("draining", strconv.AppendBool(nil, s.Draining))
		return r.end()
	})
	return r.end()
}

func appendProblem(dst []byte, p fleet.Problem) []byte {
	r := newRow(dst, nil)
	r.textOrNull("graph", p.Graph)
	r.textOrNull("at", p.At)
	r.text("error", p.Error)
	r.raw("reload", strconv.AppendBool(nil, p.Reload))
	return r.end()
}

// LogQuery reads the query of the routes for logs. get returns all values of a parameter; the last one counts.
func LogQuery(get func(name string) []string) (fleet.LogQuery, error) {
	p := params(get)
	q := fleet.LogQuery{Level: slog.LevelDebug}
	var err error
	if q.Limit, err = p.limit(defaultLines, maxLines); err != nil {
		return q, err
	}
	if v, ok := p.last("level"); ok && (!slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(v)) || q.Level.UnmarshalText([]byte(v)) != nil) {
		return q, fault.New(fault.Unprocessable, "Invalid level: debug, info, warn or error")
	}
	q.Text, _ = p.last("text")
	q.Server, _ = p.last("server")
	if v, ok := p.last("requests"); ok {
		q.NoRequests = !True(v)
	}
	return q, nil
}

// AppendLogs appends {"lines": […]}.
func AppendLogs(dst []byte, list []fleet.Logged) []byte {
	r := newRow(dst, nil)
	r.key("lines")
	r.dst = AppendList(r.dst, list, func(dst []byte, l fleet.Logged) []byte {
		r := newRow(dst, nil)
		r.text("server", l.Server)
		r.int("seq", int(l.Seq))
		r.time("time", l.Time)
		r.text("level", strings.ToLower(l.Level))
		r.text("message", l.Message)
		r.key("attributes")
		attrs := newRow(r.dst, nil)
		for _, key := range slices.Sorted(maps.Keys(l.Attrs)) {
			attrs.text(key, l.Attrs[key])
		}
		r.dst = attrs.end()
		return r.end()
	})
	return r.end()
}
