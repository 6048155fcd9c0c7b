package compat

import (
	"encoding/json"
	"time"

	"understudy/access"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// NewCron decodes the body of POST /runs/crons and, with a thread, of POST /threads/{id}/runs/crons.
func NewCron(body []byte, t id.Thread) (run.NewCron, error) {
	o, err := decode(body, CronCreate)
	if err != nil {
		return run.NewCron{}, err
	}
	n := run.NewCron{
		Thread:      t,
		AssistantID: o.text("assistant_id"),
		Schedule:    o.text("schedule"),
		Timezone:    o.text("timezone"),
		Metadata:    o.metadata(),
		Enabled:     o.raw("enabled") == nil || o.bool("enabled"),
	}
	if t == "" { // a cron with a thread keeps it
		n.OnRunCompleted = o.text("on_run_completed")
	}
	if err := o.namedTimezone(); err != nil {
		return n, err
	}
	if n.EndTime, err = o.endTime(); err != nil {
		return n, err
	}
	n.Payload, err = o.payload()
	return n, err
}

// PatchCron decodes the body of PATCH /runs/crons/{id}. An empty one is refused.
func PatchCron(body []byte) (run.CronPatch, error) {
	o, err := decode(body, CronPatch)
	if err != nil {
		return run.CronPatch{}, err
	}
	if len(o) == 0 {
		return run.CronPatch{}, fault.New(fault.Invalid, "Request body cannot be empty")
	}
	p := run.CronPatch{
		Schedule:       o.textPtr("schedule"),
		Timezone:       o.textPtr("timezone"),
		Enabled:        o.boolPtr("enabled"),
		Metadata:       o.metadata(),
		OnRunCompleted: o.textPtr("on_run_completed"),
	}
	if err := o.namedTimezone(); err != nil {
		return p, err
	}
	if p.EndTime, err = o.endTime(); err != nil {
		return p, err
	}
	if v, given := o["end_time"]; given && isNull(v) {
		p.ClearEndTime = true
	}
	p.Payload, err = o.payload()
	return p, err
}

// namedTimezone refuses an empty timezone: only an absent one means UTC.
func (o object) namedTimezone() error {
	if o.raw("timezone") != nil && o.text("timezone") == "" {
		return fault.New(fault.Invalid, "Invalid timezone: ''. Use IANA timezone format (e.g. 'America/New_York').")
	}
	return nil
}

func (o object) endTime() (*time.Time, error) {
	if o.raw("end_time") == nil {
		return nil, nil
	}
	t, ok := parseTime(o.text("end_time"))
	if !ok {
		return nil, fault.Newf(fault.Unprocessable, "Invalid end_time: '%s'. Use ISO 8601 format.", cut([]byte(o.text("end_time"))))
	}
	return &t, nil
}

// payload returns the request without the assistant, in the form of a cron's payload: unknown members are kept.
func (o object) payload() (map[string]json.RawMessage, error) {
	config, context, err := o.configured()
	if err != nil {
		return nil, err
	}
	m := make(map[string]json.RawMessage, len(o))
	for k, v := range o {
		m[k] = v
	}
	delete(m, "assistant_id")
	for k, v := range map[string]json.RawMessage{"config": config, "context": context, "metadata": o.metadata()} {
		if v != nil {
			m[k] = v
		}
	}
	return m, nil
}

// SearchCrons decodes the body of POST /runs/crons/search.
func SearchCrons(body []byte) (run.CronQuery, Columns, error) {
	o, err := decode(body, CronSearch)
	if err != nil {
		return run.CronQuery{}, nil, err
	}
	q, err := o.cronQuery()
	q.SortBy = o.textOr("sort_by", "created_at")
	q.Ascending = o.text("sort_order") == "asc"
	q.Limit = o.integer("limit", 10)
	q.Offset = o.integer("offset", 0)
	return q, o.texts("select"), err
}

// CountCrons decodes the body of POST /runs/crons/count.
func CountCrons(body []byte) (run.CronQuery, error) {
	o, err := decode(body, CronCount)
	if err != nil {
		return run.CronQuery{}, err
	}
	return o.cronQuery()
}

func (o object) cronQuery() (q run.CronQuery, err error) {
	q.Enabled = o.boolPtr("enabled")
	q.Metadata = o.raw("metadata")
	if q.Assistant, err = optional[id.Assistant](o, "assistant_id", "assistant"); err != nil {
		return q, err
	}
	q.Thread, err = optional[id.Thread](o, "thread_id", "thread")
	return q, err
}

const (
	defaultTimes = 5
	maxTimes     = 100
)

// TimesQuery reads the query of the route that lists the next times of a cron. get returns all values of a parameter; the last one counts.
func TimesQuery(get func(name string) []string) (limit int, err error) {
	return params(get).limit(defaultTimes, maxTimes)
}

// AppendTimes appends the next times of a cron, each with the offset of its zone.
func AppendTimes(dst []byte, timezone string, times []time.Time) []byte {
	r := newRow(dst, nil)
	r.textOrNull("timezone", timezone)
	r.raw("times", AppendList(nil, times, func(dst []byte, t time.Time) []byte { return append(dst, jsonobj.Quote(t.Format(time.RFC3339))...) }))
	return r.end()
}

// AppendCron appends a cron.
func AppendCron(dst []byte, c *run.Cron, cols Columns) []byte {
	r := newRow(dst, cols)
	r.text("cron_id", string(c.ID))
	r.text("assistant_id", string(c.Assistant))
	r.textOrNull("thread_id", string(c.Thread))
	creator := ""
	if a := access.OfRun(jsonobj.Of(c.Payload).Get("config")); a != nil {
		creator = a.Identity
	}
	r.text("user_id", creator)
	r.timeOrNull("end_time", c.EndTime)
	r.text("schedule", c.Schedule)
	r.textOrNull("timezone", c.Timezone)
	r.object("payload", access.HideUser(encryption.Hide(c.Payload, "config"), "config"))
	r.timeOrNull("next_run_date", c.Next)
	r.object("metadata", c.Metadata)
	r.textOrNull("on_run_completed", c.OnRunCompleted)
	r.bool("enabled", c.Enabled)
	r.time("created_at", c.CreatedAt)
	r.time("updated_at", c.UpdatedAt)
	return r.end()
}
