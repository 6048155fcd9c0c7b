// Package webhook notifies clients of the ends of their runs. What is to be sent stands in an outbox, where the transaction that ended the
// run put it: nothing is lost, and nothing is sent for a run that did not end.
package webhook

import (
	"encoding/json"
	"time"

	"understudy/id"
	"understudy/internal/jsonobj"
)

// Delivery is an entry of the outbox: a webhook that is still to be sent.
type Delivery struct {
	ID       int64
	Thread   id.Thread
	Run      id.Run
	URL      string
	Origin   string          // scheme and host of URL: deliveries to one wait for each other
	Body     json.RawMessage // complete but for webhook_sent_at
	Attempts int
	Due      time.Time
}

// Query selects deliveries of the outbox.
type Query struct {
	By        time.Time // due by then
	Skip      []string  // origins that are left out
	PerOrigin int       // at most so many of one origin: those due longest
	Limit     int
}

// timeLayout is how the API writes times.
const timeLayout = "2006-01-02T15:04:05.000000-07:00"

// End is what a webhook reports: a run that has ended.
type End struct {
	Thread          id.Thread
	Run             id.Run
	URL             string
	Object          json.RawMessage // the run, as the API shows it
	Started, Ended  time.Time
	Values, Failure json.RawMessage // of the thread; nil: none
}

// Delivery makes the entry of the outbox that reports the end of a run, with the fields that the policy allows.
func (p *Policy) Delivery(e End) *Delivery {
	whole := jsonobj.Of(e.Object)
	whole.SetText("run_started_at", e.Started.UTC().Format(timeLayout))
	whole.SetText("run_ended_at", e.Ended.UTC().Format(timeLayout))
	if e.Values == nil {
		e.Values = json.RawMessage(`null`)
	}
	whole.Set("values", e.Values)
	if e.Failure != nil {
		whole.Set("error", e.Failure)
	}
	body := &jsonobj.Object{}
	whole.Each(func(k string, v json.RawMessage) {
		if p.allows(k) {
			body.Set(k, v)
		}
	})
	return &Delivery{Thread: e.Thread, Run: e.Run, URL: e.URL, Origin: origin(e.URL), Body: body.JSON(), Due: e.Ended}
}
