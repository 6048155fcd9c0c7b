package compat

import (
	"slices"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

const (
	defaultRecent = 50
	maxRecent     = 1000
)

var runStatuses = []run.Status{run.Pending, run.Running, run.Success, run.Error, run.Interrupted, run.Timeout}

// RecentQuery reads the query of the route that lists the runs of all threads. get returns all values of a parameter; the last one counts.
func RecentQuery(get func(name string) []string) (run.Recent, error) {
	p := params(get)
	limit, err := p.limit(defaultRecent, maxRecent)
	if err != nil {
		return run.Recent{}, err
	}
	before, err := p.before()
	if err != nil {
		return run.Recent{}, err
	}
	q := run.Recent{Before: id.Run(before), Limit: limit}
	if v, ok := p.last("status"); ok {
		if q.Status = run.Status(v); !slices.Contains(runStatuses, q.Status) {
			return q, fault.Newf(fault.Unprocessable, "Invalid status: one of %v", runStatuses)
		}
	}
	q.Graph, _ = p.last("graph_id")
	if v, ok := p.last("cron_id"); ok && v != "" {
		if q.Cron, err = CronID(v); err != nil {
			return q, err
		}
	}
	return q, nil
}

// AppendRecent appends a page of runs without their arguments: {"runs": […], "next": text or null}.
func AppendRecent(dst []byte, page []*run.Run, next string, now time.Time) []byte {
	r := newRow(dst, nil)
	r.key("runs")
	r.dst = AppendList(r.dst, page, func(dst []byte, x *run.Run) []byte {
		r := recentRow(dst, x)
		r.textOrNull("waits_for", waitsFor(x, now))
		owner, lease := "", time.Time{}
		if x.Status == run.Running {
			owner, lease = x.Owner, x.LeaseUntil
		}
		r.textOrNull("server", owner)
		r.timeOrNull("lease_until", orNil(lease))
		return r.end()
	})
	r.textOrNull("next", next)
	return r.end()
}

// waitsFor returns what a run waits for: "time" until it is due, "thread" for another run of its thread, "job" for a server that may execute it; "" for nothing.
func waitsFor(x *run.Run, now time.Time) string {
	switch {
	case x.Status != run.Pending:
		return ""
	case x.CreatedAt.After(now):
		return "time"
	case x.Behind:
		return "thread"
	}
	return "job"
}

// recentRow begins the row of a run: its error, and when it began and ended, are not in the API of LangGraph Server.
func recentRow(dst []byte, x *run.Run) row {
	r := newRow(dst, nil)
	r.text("run_id", string(x.ID))
	r.text("thread_id", string(x.Thread))
	r.text("assistant_id", string(x.Assistant))
	r.text("graph_id", x.Graph)
	r.text("status", string(x.Status))
	r.object("metadata", x.Metadata)
	r.time("created_at", x.CreatedAt)
	r.time("updated_at", x.UpdatedAt)
	r.timeOrNull("started_at", orNil(x.StartedAt))
	r.timeOrNull("ended_at", orNil(x.EndedAt))
	r.int("attempt", x.Attempt)
	r.raw("error", x.Error)
	return r
}
