package compat

import (
	"time"

	"understudy/internal/fault"
	"understudy/run/usage"
)

const defaultUsageDays = 30

// UsageQuery reads the query of the route that reports what runs used. get returns all values of a parameter; the last one counts.
func UsageQuery(get func(name string) []string) (usage.Query, error) {
	p := params(get)
	var q usage.Query
	var err error
	if v, ok := p.last("until"); ok {
		if q.Until, err = time.Parse(time.DateOnly, v); err != nil || q.Until.Year() < 1970 {
			return q, fault.New(fault.Unprocessable, "Invalid until: a date such as 2026-01-31")
		}
	}
	q.Identity, _ = p.last("user")
	q.Days, err = p.number("days", defaultUsageDays, usage.MaxDays)
	return q, err
}

// AppendUsed appends a report of what runs used.
func AppendUsed(dst []byte, u *usage.Report) []byte {
	r := newRow(dst, nil)
	r.text("since", date(u.Since))
	r.text("until", date(u.Until))
	r.key("total")
	r.dst = appendUsed(r.dst, "", "", &u.Whole.Sum, u.Whole.Took)
	r.key("days")
	r.dst = AppendList(r.dst, u.Days, func(dst []byte, d usage.Day) []byte { return appendUsed(dst, "date", date(d.Day), &d.Sum, d.Took) })
	for _, list := range []struct{ key, kind, name string }{
		{"graphs", usage.Graph, "graph_id"}, {"assistants", usage.Assistant, "assistant_id"}, {"models", usage.Model, "model"}, {"callers", usage.Caller, "caller"},
	} {
		r.key(list.key)
		r.dst = AppendList(r.dst, u.By[list.kind], func(dst []byte, n usage.Named) []byte { return appendUsed(dst, list.name, n.Name, &n.Sum, n.Took) })
	}
	return r.end()
}

func date(day int64) string { return usage.Date(day).Format(time.DateOnly) }

// appendUsed appends a sum under a name. The sum of all that are not listed has null.
func appendUsed(dst []byte, key, name string, s *usage.Sum, took usage.Took) []byte {
	r := newRow(dst, nil)
	if key != "" {
		r.textOrNull(key, name)
	}
	for _, n := range []struct {
		key   string
		value int64
	}{
		{"runs", s.Runs}, {"errors", s.Errors}, {"llm_calls", s.Calls}, {"input_tokens", s.Input}, {"output_tokens", s.Output}, {"total_tokens", s.Total},
	} {
		r.int(n.key, int(n.value))
	}
	r.int("p50_ms", int(took.P50.Milliseconds()))
	r.int("p95_ms", int(took.P95.Milliseconds()))
	return r.end()
}
