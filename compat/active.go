package compat

import (
	"cmp"
	"strings"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// ActiveQuery reads the query of the route that counts active runs. get returns all values of a parameter; the last one counts.
func ActiveQuery(get func(name string) []string) (run.Active, error) {
	var of run.Active
	status, _ := params(get).last("status")
	of.Graph, _ = params(get).last("graph_id")
	switch run.Status(status) {
	case run.Pending, run.Running:
		of.Status = run.Status(status)
	case "", "all":
	default:
		return of, fault.New(fault.Unprocessable, "Invalid status: pending, running or all; runs that have ended cannot be cancelled")
	}
	return of, nil
}

// AppendActiveCount appends {"count": number, "more": boolean, "until": UUID}. Until is the last run that was counted, whatever the clocks of servers say, or if
// that is not known one of this moment.
func AppendActiveCount(dst []byte, n run.ActiveCount) []byte {
	r := newRow(dst, nil)
	r.int("count", n.Runs)
	r.bool("more", n.More)
	r.text("until", string(cmp.Or(n.Last, id.NewRun())))
	return r.end()
}

// Cancelling is the request of POST /understudy/runs/cancel: the selected runs of the threads above one.
type Cancelling struct {
	Of    run.Active
	Above id.Thread
}

// CancelSome decodes the body of POST /understudy/runs/cancel. opened returns what was sealed in `after`.
func CancelSome(body []byte, opened func(string) string) (Cancelling, error) {
	o, err := decode(body, RunsCancelSome)
	if err != nil {
		return Cancelling{}, err
	}
	c := Cancelling{Of: run.Active{Graph: o.text("graph_id"), Until: id.NewRun()}}
	if status := o.text("status"); status != "all" {
		c.Of.Status = run.Status(status)
	}
	if o.raw("until") != nil {
		if c.Of.Until, err = RunID(o.text("until")); err != nil {
			return c, err
		}
	}
	if o.raw("after") == nil {
		return c, nil
	}
	until, above, _ := strings.Cut(opened(o.text("after")), ".")
	c.Of.Until, c.Above = id.Run(id.Canonical(until)), id.Thread(id.Canonical(above))
	if c.Of.Until == "" || c.Above == "" {
		return c, fault.New(fault.Unprocessable, "Invalid after: must be the next of a call before")
	}
	return c, nil
}

// Next is where the next call continues: the `after` of a body; "": there is none.
func (c Cancelling) Next() string {
	if c.Above == "" {
		return ""
	}
	return string(c.Of.Until) + "." + string(c.Above)
}

// AppendCancelled appends {"cancelled": number, "next": text or null}.
func AppendCancelled(dst []byte, n int, next string) []byte {
	r := newRow(dst, nil)
	r.int("cancelled", n)
	r.textOrNull("next", next)
	return r.end()
}
